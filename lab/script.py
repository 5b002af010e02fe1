# SPDX-License-Identifier: BSD-3-Clause
"""From a plan to the lines that `ip`, `tc` and `bridge` get with -batch; pure.

Every namespace is `LAB-HOST`, and that of all switches `LAB+net`. Cables are
made where they belong, end by end, so nothing of them is ever seen outside."""

MGMT = "mgmt"  # the bridge of the management network


def host_namespace(lab, host):
    return "%s-%s" % (lab, host)


def switch_namespace(lab):
    return lab + "+net"


def namespaces(lab, plan):
    return [switch_namespace(lab)] + [host_namespace(lab, h["name"])
                                      for h in plan["hosts"]]


def make_namespaces(lab, plan):
    return ["netns add " + name for name in namespaces(lab, plan)]


# -------------------------------------------------------------------- cables

def end_words(lab, switches, end, index):
    where = switch_namespace(lab) if end["node"] in switches else \
        host_namespace(lab, end["node"])
    words = "name %s index %d netns %s" % (end["ifname"], index, where)
    return words + (" address " + end["mac"] if end["mac"] else "")


def make_cables(lab, plan, has_dummy):
    """Every end has a number that no other has: the kernel looks at once at
    whether a link runs only when its ends' numbers differ, else within a
    second."""
    switches = {s["name"] for s in plan["switches"]}
    lines, n = [], 1000
    for a, b in plan["wires"]:
        lines.append("link add %s type veth peer %s" % (
            end_words(lab, switches, a, n),
            end_words(lab, switches, b, n + 1)))
        n += 2
    for i, host in enumerate(plan["hosts"]):
        here = host_namespace(lab, host["name"])
        lines.append("link add name mgmt0 index %d netns %s type veth peer "
                     "name m%d index %d netns %s"
                     % (n, here, i, n + 1, switch_namespace(lab)))
        n += 2
        if host["ifname"] == "host0":
            kind = "dummy" if has_dummy else "veth peer name host1 netns " \
                + here
            lines.append("link add name host0 netns %s type %s" % (here, kind))
    return lines


# ------------------------------------------------------------------ switches

def alias(end):
    return 'link set dev %s alias "%s to %s"' % (end["ifname"], end["node"],
                                                 end["to"])


def set_up_switches(plan):
    """Bridges that know everything: they neither learn nor flood."""
    lines = ["link add name %s type bridge stp_state 0 forward_delay 0 "
             "mcast_snooping 0" % bridge
             for bridge in [s["bridge"] for s in plan["switches"]] + [MGMT]]
    for switch in plan["switches"]:
        lines.append("link set dev %s alias %s up" % (switch["bridge"],
                                                      switch["name"]))
    bridge_of = {s["name"]: s["bridge"] for s in plan["switches"]}
    for end in [end for wire in plan["wires"] for end in wire]:
        if end["node"] not in bridge_of:
            continue
        name = end["ifname"]
        lines += ["link set dev %s master %s" % (name, bridge_of[end["node"]]),
                  "link set dev %s type bridge_slave learning off flood off "
                  "mcast_flood off bcast_flood off" % name,
                  alias(end), "link set dev %s up" % name]
    lines.append("link set dev %s up" % MGMT)
    for i in range(len(plan["hosts"])):
        lines += ["link set dev m%d master %s" % (i, MGMT),
                  "link set dev m%d up" % i]
    return lines


def fill_bridges(plan):
    return ["fdb add %s dev %s master static" % (mac, port)
            for port, mac in plan["entries"]]


# ---------------------------------------------------------------------- rates

def shape(end, has_netem):
    """tbf, where the link has a limit (a burst); below netem, where the kernel
    has it and the link a latency."""
    netem = "netem delay %.3fus limit 1000000" % (end["latency_s"] * 1e6)
    has_netem = has_netem and end["latency_s"]
    if not end["burst"]:
        return ["qdisc add dev %s root handle 2: %s" % (end["ifname"], netem)
                ] if has_netem else []
    tbf = "tbf rate %dbit burst %d limit %d" % (
        end["rate_bps"], end["burst"], end["queue"])
    if not has_netem:
        return ["qdisc add dev %s root handle 1: %s" % (end["ifname"], tbf)]
    return ["qdisc add dev %s root handle 2: %s" % (end["ifname"], netem),
            "qdisc add dev %s parent 2:1 handle 1: %s" % (end["ifname"], tbf)]


def shape_all(plan, nodes, has_netem):
    return [line for wire in plan["wires"] for end in wire
            if end["node"] in nodes for line in shape(end, has_netem)]


# ---------------------------------------------------------------------- hosts

def set_up_host(plan, host, has_dummy):
    """noprefixroute: whoever looks sees hosts on one network 10.0.0.0/16, as
    some programs insist; but ways are the topology's, one by one."""
    lines = ["link set dev lo up",
             "address add %s/16 dev mgmt0" % host["mgmt"],
             "link set dev mgmt0 up",
             "address add %s/16 dev %s noprefixroute" % (host["address"],
                                                         host["ifname"])]
    if host["ifname"] == "host0":
        lines += ["link set dev %s up" % name for name
                  in (("host0",) if has_dummy else ("host0", "host1"))]
    for link in host["links"]:
        if link["address"]:
            lines.append("address add %s/%d dev %s" % (
                link["address"], link["prefix"], link["ifname"]))
        lines += [alias(plan["wires"][link["wire"]][link["side"]]),
                  "link set dev %s up" % link["ifname"]]
    return lines


def find_others(plan, host):
    lines = ["neighbour add %s lladdr %s dev %s nud permanent"
             % (address, mac, ifname)
             for name, ifname, address, mac in plan["neighbours"]
             if name == host["name"]]
    for name, target, via, ifname in plan["routes"]:
        if name == host["name"]:
            lines.append("route add %s/32 %sdev %s src %s%s" % (
                target, "via %s " % via if via else "", ifname,
                host["address"], " onlink" if via else ""))
    lines += ["route add %s/32 dev %s src %s metric %d"
              % (target, ifname, host["address"], metric)
              for name, target, ifname, metric in plan["rails"]
              if name == host["name"]]
    return lines


def settings(host, congestion):
    """What is written below /proc/sys/net in a host."""
    values = {"ipv4/tcp_congestion_control": congestion,
              # A connection does not begin with what another one learnt.
              "ipv4/tcp_no_metrics_save": "1"}
    for which in ("all", "default"):
        values["ipv4/conf/%s/rp_filter" % which] = "0"
        values["ipv4/conf/%s/send_redirects" % which] = "0"
        values["ipv4/conf/%s/accept_redirects" % which] = "0"
    values["ipv4/ip_forward"] = "1" if host["forwards"] else "0"
    return values


# ---------------------------------------------------------------------- names

def switch_interfaces(plan):
    names = ["m%d" % i for i in range(len(plan["hosts"]))]
    switches = {s["name"] for s in plan["switches"]}
    return names + [end["ifname"] for wire in plan["wires"] for end in wire
                    if end["node"] in switches]


def host_interfaces(host):
    return ["mgmt0", host["ifname"]] + [k["ifname"] for k in host["links"]]


def hosts_file(plan):
    lines = ["127.0.0.1 localhost"]
    lines += ["%s %s" % (h["address"], h["name"]) for h in plan["hosts"]]
    names = {h["name"] for h in plan["hosts"]}
    lines += ["%s %s.mgmt" % (h["mgmt"], h["name"]) for h in plan["hosts"]
              if h["name"] + ".mgmt" not in names]
    return "\n".join(lines) + "\n"


def host_variables(lab, host, topology):
    """What a program on the host finds in its environment. Interfaces that the
    topology names are for data by themselves, each for its own part."""
    links = [k["ifname"] for k in host["links"]]
    data = [host["ifname"]]
    if len(links) > 1 and all(k["is_named"] for k in host["links"]):
        data = links
    return {"LAB_NAME": lab, "LAB_TOPOLOGY": topology, "LAB_HOST": host["name"],
            "LAB_ADDR": host["address"], "LAB_MGMT": host["mgmt"],
            "LAB_IFNAME": host["ifname"], "LAB_DATA": ",".join(data),
            "LAB_LINKS": ",".join(links)}

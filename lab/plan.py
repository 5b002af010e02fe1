# SPDX-License-Identifier: BSD-3-Clause
"""From a topology to what a lab consists of, as plain data; pure.

make() takes what `tutti topo --json --routes` says and returns a plan:

    hosts     name, ranks, address, management address, the interface of the
              address, the interfaces of links, whether it forwards
    switches  name, bridge
    wires     one for each cable: two ends, each with its interface, MAC and
              what may leave there (rate, burst, queue, latency)
    routes    [host, destination, next address, interface]
    neighbours [host, interface, address, MAC]
    entries   [port, MAC]: where a bridge forwards frames for that MAC
    notes     sentences about what the lab cannot do of this topology

Addresses  A host has one address, by which everybody reaches it. It is on its
           only interface, or, where there are several, on `host0`, which is
           no cable's. Interfaces of such hosts have addresses of their own.
Routes     The topology's. A route goes from host to host; in between, through
           switches, frames follow the MAC of the next host's interface. What
           leaves a node depends on the destination only, so that tables of
           addresses and of MACs can say it; where not, make() refuses.
Next       script.py (the commands), kernel.py (which runs them)."""
import ipaddress

KIB, MIB = 1 << 10, 1 << 20
MOST_HOSTS = 250  # numbers of one byte; N * N routes
MOST_PORTS = 1023  # of a Linux bridge
# Below about 72 KiB tbf splits every packet of segmentation offload.
LEAST_BURST, LEAST_FAST_BURST = 128 * KIB, 256 * KIB
FAST_BPS = 500_000_000
QUEUE = 1 * MIB  # docs/how-to/lab.md says why
MOST_BPS = 1_000_000_000_000  # a burst must last for some ticks of tc
LEAST_BPS = 8_000
CARRIED_BPS = 8_000_000_000  # sent by all hosts, on two cores; lab.md
TAKEN = ("lo", "host0", "host1", "mgmt0")


class Bad(Exception):
    """What the user asked for cannot be; one sentence."""


def size_text(n):
    if n % KIB:
        return "%d bytes" % n
    return "%d KiB" % (n // KIB) if n % MIB else "%d MiB" % (n // MIB)


def rate_text(bps):
    for unit, name in ((10**9, "Gbit/s"), (10**6, "Mbit/s"),
                       (10**3, "kbit/s")):
        if bps >= unit:
            return "%g %s" % (bps / unit, name)
    return "%d bit/s" % bps


# --------------------------------------------------------------- hosts, wires

def sort_nodes(net):
    """Hosts and switches by name, and whose host a slot is."""
    hosts, switches, slot_of = {}, {}, {}
    for node in net["nodes"]:
        if node["kind"] == "switch":
            switches[node["name"]] = {"name": node["name"],
                                      "bridge": "s%d" % len(switches)}
        elif node["kind"] == "slot":
            slot_of[node["name"]] = node["host"]
            hosts[node["host"]]["ranks"].append(node["rank"])
        else:
            ranks = [] if node["rank"] is None else [node["rank"]]
            hosts[node["name"]] = {"name": node["name"], "ranks": ranks,
                                   "forwards": node["forwards"]}
    for host in hosts.values():
        host["ranks"].sort()
    return hosts, switches, slot_of


def check_names(hosts):
    if len(hosts) > MOST_HOSTS:
        raise Bad("the topology has %d hosts; a lab has at most %d"
                  % (len(hosts), MOST_HOSTS))
    for name in hosts:
        if len(name) > 64 or name.startswith("-") or name in (".", ".."):
            raise Bad("`%s` cannot be a host's name: it needs at most 64 "
                      "letters, the first no dash, and not to be `.` or `..`"
                      % name)


def number_hosts(hosts):
    for i, host in enumerate(hosts.values()):
        host["number"] = i
        host["address"] = "10.0.0.%d" % (i + 1)
        host["mgmt"] = "192.168.0.%d" % (i + 1)
        host["links"] = []


def check_rate(link, bps):
    if LEAST_BPS <= bps <= MOST_BPS:
        return
    raise Bad("the link from `%s` to `%s` has %s; tc can do %s to %s"
              % (link["from"], link["to"], rate_text(bps),
                 rate_text(LEAST_BPS), rate_text(MOST_BPS)))


def least_burst(bps):
    return LEAST_FAST_BURST if bps >= FAST_BPS else LEAST_BURST


def make_end(link, options):
    """What leaves by this link, at its beginning."""
    bps = link["rate_bps"]
    check_rate(link, bps)
    least = least_burst(bps)
    burst = options["burst"] or least
    if burst < least:
        raise Bad("a burst of %s is too small: at %s tc needs at least %s, "
                  "else every packet is split and the processor is measured, "
                  "not the network" % (size_text(burst), rate_text(bps),
                                       size_text(least)))
    queue = options["queue"] or max(QUEUE, burst)
    if queue < burst:
        raise Bad("a queue of %s is too small: it must hold the burst of %s, "
                  "else TCP's large packets may not fit, and are dropped"
                  % (size_text(queue), size_text(burst)))
    if options.get("unlimited"):
        burst = queue = 0
    return {"node": link["from"], "to": link["to"], "rate_bps": bps,
            "burst": burst, "queue": queue,
            "latency_s": link["latency_s"], "dev": link["dev"]}


def make_wires(net, slot_of, options):
    """One wire for a link and its twin. Also: link -> (wire, the side where
    the link begins)."""
    wires, begin_of = [], {}
    for i, link in enumerate(net["links"]):
        if link["from"] in slot_of or link["to"] in slot_of or i in begin_of:
            continue
        twin = link["twin"]
        if twin is None:
            back = dict(link, dev=None)
            back.update({"from": link["to"], "to": link["from"]})
        else:
            back = net["links"][twin]
            begin_of[twin] = len(wires), 1
        begin_of[i] = len(wires), 0
        wires.append([make_end(link, options), make_end(back, options)])
    return wires, begin_of


def name_interface(host, end):
    """dev= of the topology, else the first ethN that is free."""
    used = {link["ifname"] for link in host["links"]}
    name = end.pop("dev")
    if name is None:
        numbers = range(len(used) + 1)
        return next("eth%d" % i for i in numbers if "eth%d" % i not in used)
    if len(name) > 15 or "/" in name or name in TAKEN or name in (".", ".."):
        raise Bad("`%s` cannot be an interface of host `%s`" % (name,
                                                                host["name"]))
    if name in used:
        raise Bad("host `%s` has two links with dev=%s" % (host["name"], name))
    return name


def name_ends(wires, hosts, switches):
    """Interfaces and MACs. Links with dev= first, so that ethN is what is
    left."""
    ends = [(w, side, wire[side]) for w, wire in enumerate(wires)
            for side in (0, 1)]
    ends.sort(key=lambda e: e[2]["dev"] is None)
    ports = dict.fromkeys(switches, 0)
    for w, side, end in ends:
        end["mac"] = None
        if end["node"] in switches:
            del end["dev"]
            end["ifname"] = "p%d%s" % (w, "ab"[side])
            ports[end["node"]] += 1
            continue
        host = hosts[end["node"]]
        is_named = end["dev"] is not None
        end["ifname"] = name_interface(host, end)
        end["mac"] = "02:00:00:%02x:%02x:%02x" % (
            host["number"], len(host["links"]) >> 8, len(host["links"]) & 255)
        host["links"].append({"ifname": end["ifname"], "mac": end["mac"],
                              "wire": w, "side": side, "address": None,
                              "is_named": is_named})
    for name, n in ports.items():
        if n > MOST_PORTS:
            raise Bad("switch `%s` has %d links; a bridge has at most %d"
                      % (name, n, MOST_PORTS))


def is_single(host, hosts, wires):
    """Has it one link, which is no cable to a host that has several?"""
    links = host["links"]
    if len(links) != 1:
        return False
    other = hosts.get(wires[links[0]["wire"]][1 - links[0]["side"]]["node"])
    return not other or len(other["links"]) == 1


def place_addresses(hosts, wires, switches):
    """Where a host's address is, and those of its links if there are
    several, or the link is an end of a line of cables."""
    base = int(ipaddress.ip_address("10.128.0.0"))
    for host in hosts.values():
        links = sorted(host["links"], key=lambda x: (x["wire"], x["side"]))
        host["links"] = links
        is_alone = is_single(host, hosts, wires)
        host["ifname"] = links[0]["ifname"] if is_alone else "host0"
        host["forwards"] &= len(links) > 1
        if not links or is_alone:
            continue
        for link in links:
            other = wires[link["wire"]][1 - link["side"]]["node"]
            link["address"] = str(ipaddress.ip_address(
                base + 2 * link["wire"] + link["side"]))
            link["prefix"] = 32 if other in switches else 31


# -------------------------------------------------------------------- routes

def host_routes(net, hosts, begin_of, notes):
    """(host, host) -> its links: those between the first ranks of both."""
    host_of = {rank: h["name"] for h in hosts.values() for rank in h["ranks"]}
    first = {h["ranks"][0] for h in hosts.values()}
    routes, others = {}, []
    for src, dst, links in net["routes"]:
        if not links:
            continue  # hosts between them do not forward
        pair = host_of[src], host_of[dst]
        way = [i for i in links if i in begin_of]
        if pair[0] != pair[1]:
            others.append((pair, way))
            if src in first and dst in first:
                routes[pair] = way
    odd = sorted({pair[1] for pair, way in others if routes[pair] != way})
    if odd:
        notes.append("every rank of a host is reached the way its first one "
                     "is; the topology has different ways to those of %s"
                     % ", ".join(odd))
    return routes


def host_rails(net, hosts, begin_of):
    """[from, to, links] of the further routes between first ranks that lead
    from a host to another with only switches between."""
    host_of = {rank: h["name"] for h in hosts.values() for rank in h["ranks"]}
    first = {h["ranks"][0] for h in hosts.values() if h["ranks"]}
    rails = []
    for src, dst, _, links in net["rails"]:
        way = [i for i in links if i in begin_of]
        between = [net["links"][i]["to"] for i in way[:-1]]
        if src in first and dst in first and host_of[src] != host_of[dst] and \
                not any(node in hosts for node in between):
            rails.append((host_of[src], host_of[dst], way))
    return rails


def next_links(net, routes):
    """(node, destination) -> the link by which to leave."""
    table = {}
    for (_, dst), links in routes.items():
        for i in links:
            node = net["links"][i]["from"]
            if table.setdefault((node, dst), i) != i:
                raise Bad("the routes to `%s` part at `%s` by where they come "
                          "from, and a lab's tables only know where they go"
                          % (dst, node))
    return table


class Router:
    """Fills in the routes, neighbours and entries of a plan."""

    def __init__(self, plan, net, begin_of, table):
        self.plan, self.net = plan, net
        self.begin_of, self.table = begin_of, table
        self.hosts = {h["name"]: h for h in plan["hosts"]}
        self.at = {(k["wire"], k["side"]): k for h in plan["hosts"]
                   for k in h["links"]}
        self.owner = {(k["wire"], k["side"]): h["name"]
                      for h in plan["hosts"] for k in h["links"]}
        self.neighbours, self.entries = {}, {}

    def end(self, link, is_arrival):
        wire, side = self.begin_of[link]
        return wire, side ^ is_arrival

    def follow(self, node, dst):
        """To the next host: its name and all links up to there."""
        links = []
        while not links or node not in self.hosts:
            links.append(self.table[node, dst])
            node = self.net["links"][links[-1]]["to"]
        return node, links

    def teach_switches(self, links, mac):
        for link in links[1:]:
            wire, side = self.end(link, False)
            port = self.plan["wires"][wire][side]
            known = self.entries.setdefault((port["node"], mac),
                                            port["ifname"])
            if known != port["ifname"]:
                raise Bad("frames to one interface would have to leave switch "
                          "`%s` by two ports, %s and %s; this topology cannot "
                          "be built" % (port["node"], known, port["ifname"]))

    def connect(self, host, dst):
        """The route of one host to another, and to its links."""
        name, links = self.follow(host["name"], dst["name"])
        there = self.hosts[name]
        leaving = self.at[self.end(links[0], False)]
        coming = self.at[self.end(links[-1], True)]
        self.teach_switches(links, coming["mac"])
        via = coming["address"] or there["address"]
        self.neighbours[host["name"], leaving["ifname"], via] = coming["mac"]
        targets = [dst["address"]] + [k["address"] for k in dst["links"]
                                      if self.is_beyond(host, k)]
        for target in targets:
            self.plan["routes"].append(
                [host["name"], target, None if target == via else via,
                 leaving["ifname"]])

    def is_beyond(self, host, link):
        """Has this link of another host an address that needs a route?"""
        here = self.owner.get((link["wire"], 1 - link["side"]))
        return link["address"] and here != host["name"]

    def may_teach(self, links, mac):
        """Whether the switches have no other way to that interface."""
        ports = [self.plan["wires"][wire][side] for wire, side in
                 (self.end(link, False) for link in links[1:])]
        return all(self.entries.get((port["node"], mac), port["ifname"]) ==
                   port["ifname"] for port in ports)

    def connect_rail(self, src, dst, links):
        """The way of one rail: between the two interfaces at its ends. A
        second way to one address is for who asks for its interface, so it
        gets a metric."""
        leaving = self.at[self.end(links[0], False)]
        coming = self.at[self.end(links[-1], True)]
        target = coming["address"] or self.hosts[dst]["address"]
        if (src, leaving["ifname"], target) in self.neighbours or \
                not self.may_teach(links, coming["mac"]):
            return
        self.teach_switches(links, coming["mac"])
        self.neighbours[src, leaving["ifname"], target] = coming["mac"]
        if target == coming["address"] and (src, target) not in self.direct:
            self.direct.add((src, target))
            self.plan["routes"] = [r for r in self.plan["routes"]
                                   if r[:2] != [src, target]]
            self.plan["routes"].append([src, target, None, leaving["ifname"]])
            return
        metric = 1 + sum(r[:2] == [src, target] for r in self.plan["rails"])
        self.plan["rails"].append([src, target, leaving["ifname"], metric])

    def fill(self, rails):
        for host in self.plan["hosts"]:
            for dst in self.plan["hosts"]:
                if (host["name"], dst["name"]) in self.table:
                    self.connect(host, dst)
        self.direct = {(route[0], route[1]) for route in self.plan["routes"]
                       if route[2] is None}
        for rail in rails:
            self.connect_rail(*rail)
        self.plan["neighbours"] = [list(key) + [mac] for key, mac
                                   in self.neighbours.items()]
        self.plan["entries"] = [[port, mac] for (_, mac), port
                                in self.entries.items()]


# ---------------------------------------------------------------------- plan

def note_limits(wires, hosts, notes):
    total = sum(end["rate_bps"] for wire in wires for end in wire
                if end["node"] in hosts)
    if total > CARRIED_BPS:
        notes.append("all hosts together can send %s; above %s two cores may "
                     "be what is measured" % (rate_text(total),
                                              rate_text(CARRIED_BPS)))


def make(net, options):
    """options: burst, queue (bytes; None: ours), unlimited (no rates), order
    (for the record)."""
    notes = []
    hosts, switches, slot_of = sort_nodes(net)
    check_names(hosts)
    number_hosts(hosts)
    wires, begin_of = make_wires(net, slot_of, options)
    name_ends(wires, hosts, switches)
    place_addresses(hosts, wires, switches)
    if not options.get("unlimited"):
        note_limits(wires, hosts, notes)
    plan = {"hosts": list(hosts.values()), "switches": list(switches.values()),
            "wires": wires, "routes": [], "rails": [], "notes": notes,
            "order": options["order"], "host_of_rank": [None] * net["ranks"],
            "latency_s": max((link["latency_s"] for link in net["links"]),
                             default=0)}
    for host in plan["hosts"]:
        for rank in host["ranks"]:
            plan["host_of_rank"][rank] = host["name"]
    table = next_links(net, host_routes(net, hosts, begin_of, notes))
    Router(plan, net, begin_of, table).fill(host_rails(net, hosts, begin_of))
    return plan

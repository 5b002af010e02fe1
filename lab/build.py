# SPDX-License-Identifier: BSD-3-Clause
"""Builds the lab of a plan, and waits until everything in it is up."""
import json
import os
import shlex
import subprocess
import sys

import kernel
import script
import state as labs


# What a link of a lab takes anyway; less need not be added or missed.
OWN_LATENCY_S = 100e-6


def say(sentence):
    print("lab: " + sentence, file=sys.stderr)


def set_hosts(lab, plan, congestion):
    """Before there are links, so that these are born with the settings."""
    with kernel.inside(script.switch_namespace(lab)):
        kernel.without_ipv6()
    with kernel.allowing(congestion, labs.LOCK):
        for host in plan["hosts"]:
            with kernel.inside(script.host_namespace(lab, host["name"])):
                kernel.without_ipv6()
                kernel.write_settings(script.settings(host, congestion))


def set_up(lab, plan, offers):
    """Addresses and links first; then rates, routes and entries."""
    net = script.switch_namespace(lab)
    has_netem = offers["netem"]
    spaces = [(h, script.host_namespace(lab, h["name"]))
              for h in plan["hosts"]]
    switches = {s["name"] for s in plan["switches"]}
    kernel.all_at_once(
        [("ip", script.set_up_switches(plan), net)] +
        [("ip", script.set_up_host(plan, h, offers["dummy"]), space)
         for h, space in spaces])
    kernel.all_at_once(
        [("tc", script.shape_all(plan, switches, has_netem), net),
         ("bridge", script.fill_bridges(plan), net)] +
        [("tc", script.shape_all(plan, {h["name"]}, has_netem), space)
         for h, space in spaces] +
        [("ip", script.find_others(plan, h), space) for h, space in spaces])


def ports_forward(net):
    said = subprocess.run(["bridge", "-n", net, "-j", "link"], text=True,
                          stdout=subprocess.PIPE, check=True).stdout
    return all(port["state"] == "forwarding" for port in json.loads(said))


def wait_for_links(lab, plan):
    """A link that is up drops packets until the kernel has looked at it once
    more, which may be a second later: until it is `running`."""
    net = script.switch_namespace(lab)
    spaces = [(net, script.switch_interfaces(plan))]
    spaces += [(script.host_namespace(lab, h["name"]),
                script.host_interfaces(h)) for h in plan["hosts"]]
    for space, names in spaces:
        with kernel.inside(space):
            for name in names:
                kernel.wait_until(lambda: kernel.is_running(name),
                                  "%s of %s is up" % (name, space))
    kernel.wait_until(lambda: ports_forward(net), "the switches' ports are up")


def write_hosts(lab, plan):
    labs.write_file(labs.path_of(lab, "hosts"), script.hosts_file(plan))
    os.mkdir(labs.path_of(lab, "host"))
    topology = labs.path_of(lab, "network")
    for host in plan["hosts"]:
        space = script.host_namespace(lab, host["name"])
        lines = ["netns=" + shlex.quote(kernel.namespace_path(space))]
        lines += ["export %s=%s" % (name, shlex.quote(value)) for name, value
                  in script.host_variables(lab, host, topology).items()]
        labs.write_file(labs.path_of(lab, "host", host["name"]),
                        "\n".join(lines) + "\n")


def build(state, plan):
    lab = state["name"]
    for note in plan["notes"]:
        say(note)
    kernel.batch("ip", script.make_namespaces(lab, plan))
    offers = kernel.probe(script.switch_namespace(lab))
    if plan["latency_s"] > OWN_LATENCY_S and not offers["netem"]:
        say("this kernel has no netem, so the topology's latencies are not "
            "there")
    congestion = kernel.choose_congestion()
    if congestion != "cubic":
        say("this kernel has no cubic; TCP uses " + congestion)
    set_hosts(lab, plan, congestion)
    kernel.batch("ip", script.make_cables(lab, plan, offers["dummy"]))
    set_up(lab, plan, offers)
    wait_for_links(lab, plan)
    write_hosts(lab, plan)

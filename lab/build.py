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


def all_at_once(batches):
    for one in batches:
        one.finish()


def set_up(lab, plan, offers):
    """Addresses and links first; then rates, routes and entries."""
    net = script.switch_namespace(lab)
    has_netem = offers["netem"]
    spaces = [(h, script.host_namespace(lab, h["name"]))
              for h in plan["hosts"]]
    switches = {s["name"] for s in plan["switches"]}
    all_at_once(
        [kernel.Batch("ip", script.set_up_switches(plan), net)] +
        [kernel.Batch("ip", script.set_up_host(plan, h, offers["dummy"]), space)
         for h, space in spaces])
    all_at_once(
        [kernel.Batch("tc", script.shape_all(plan, switches, has_netem), net),
         kernel.Batch("bridge", script.fill_bridges(plan), net)] +
        [kernel.Batch("tc", script.shape_all(plan, {h["name"]}, has_netem),
                      space) for h, space in spaces] +
        [kernel.Batch("ip", script.find_others(plan, h), space)
         for h, space in spaces])


def ports_forward(net):
    said = subprocess.run(["bridge", "-n", net, "-j", "link"], text=True,
                          stdout=subprocess.PIPE, check=True).stdout
    return all(port["state"] == "forwarding" for port in json.loads(said))


def wait_for_links(lab, plan):
    net = script.switch_namespace(lab)
    kernel.wait_until(lambda: ports_forward(net), "the switches' ports are up")
    for host in plan["hosts"]:
        names = [host["ifname"], "mgmt0"] + [k["ifname"]
                                             for k in host["links"]]
        with kernel.inside(script.host_namespace(lab, host["name"])):
            for name in names:
                kernel.wait_until(lambda: kernel.is_running(name),
                                  "%s of host %s is up" % (name,
                                                           host["name"]))


def write_hosts(lab, plan):
    labs.write_file(labs.path_of(lab, "hosts"), script.hosts_file(plan))
    os.mkdir(labs.path_of(lab, "host"))
    for host in plan["hosts"]:
        space = script.host_namespace(lab, host["name"])
        lines = ["netns=" + shlex.quote(kernel.namespace_path(space))]
        lines += ["export %s=%s" % (name, shlex.quote(value)) for name, value
                  in script.host_variables(lab, host).items()]
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

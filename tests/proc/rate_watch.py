# SPDX-License-Identifier: BSD-3-Clause
"""rate_watch.py NETNS DEV - how much an interface sends: until stdin ends, looks
at its counter; then prints the bytes in all, the most of any 100 ms as a rate in
Mbit/s, and the rate over the time in which something was sent. A look lies between
two times, so however late it comes nothing is said to be faster than it was."""
import re
import select
import subprocess
import sys
import time

WINDOW = 0.1


def looks(netns, dev):
    code = ("import time\n"
            "f = open('/proc/net/dev')\n"
            "while True:\n"
            " a = time.monotonic(); f.seek(0); t = f.read();"
            " b = time.monotonic()\n"
            " n = [l.split(':')[1].split()[8] for l in t.splitlines()"
            " if l.split(':')[0].strip() == '%s']\n"
            " print(a, b, n[0], flush=True); time.sleep(0.004)\n" % dev)
    child = subprocess.Popen(["ip", "netns", "exec", netns, sys.executable,
                              "-c", code], stdout=subprocess.PIPE, text=True)
    found = []
    while not select.select([sys.stdin], [], [], 0)[0]:
        line = child.stdout.readline()
        if re.match(r"[\d.]+ [\d.]+ \d+$", line):
            found.append([float(word) for word in line.split()])
    child.kill()
    child.wait()
    return found


def most(found):
    """Bytes per second, over the shortest stretch of WINDOW from each look."""
    worst, end = 0, 0
    for begin in range(len(found)):
        while end < len(found) and found[end][0] - found[begin][1] < WINDOW:
            end += 1
        if end == len(found):
            break
        sent = found[end][2] - found[begin][2]
        worst = max(worst, sent / (found[end][1] - found[begin][0]))
    return worst


def main():
    found = looks(*sys.argv[1:3])
    moving = [i for i in range(1, len(found))
              if found[i][2] - found[i - 1][2] > 3000]
    sent = found[-1][2] - found[0][2]
    took = found[moving[-1]][1] - found[moving[0] - 1][0] if moving else 1
    print("%d %.2f %.2f" % (sent, 8 * most(found) / 1e6, 8 * sent / took / 1e6))


main()

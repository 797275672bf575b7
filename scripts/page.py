#!/usr/bin/python3
"""The live page of `evenkeel serve` in a real Chromium, over a real router under changing load.

A router between two network namespaces shapes TCP and UDP under FairDrop; the page must open, show moving values, who sends most and why, an alarm while a port is down,
say so when the router is gone, and go on when it is back; Debian's Prometheus scrapes, each question of the dashboard is answered, and its alert fires and clears; the past is there after `evenkeel serve` was started
anew. Nothing of the page may be wider than a phone, and the browser may have nothing to complain about. Screenshots at 1280 and 420 pixels, light and dark,
go to out/page: look at them. Needs root and the packages of `scripts/setup.sh page`.

  scripts/page.py [EVENKEEL] [FOLDER]      default: target/quick/evenkeel, out/page
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

EVENKEEL = Path(sys.argv[1] if len(sys.argv) > 1 else "target/quick/evenkeel").resolve()
OUT = Path(sys.argv[2] if len(sys.argv) > 2 else "out/page")
# How long anything may take on a busy machine, seconds.
PATIENCE = 60

ROUTER = """
[router]
name = "edge"
cycles = true
io = "af-packet"
control = "{folder}/edge.sock"
monitor = "{folder}/edge-monitor.sock"
[[port]]
name = "lan"
interface = "lan0"
[[port]]
name = "wan"
interface = "wan0"
[[class]]
name = "rest"
[[class]]
name = "voice"
match = [{{ dscp = [46] }}]
[[class]]
name = "backup"
match = [{{ destination_port = 5202 }}, {{ source_port = 5202 }}]
[[class]]
name = "video"
match = [{{ destination_port = 5203 }}, {{ source_port = 5203 }}]
[fairdrop]
on = true
[[link]]
port = "wan"
rate = "20Mbit/s"
[[link]]
port = "lan"
rate = "100Mbit/s"
"""


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


class Bed:
    """Two hosts, a router between them, traffic; all of it goes when this ends."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        self.names = {host: f"ek-page-{os.getpid()}-{host}" for host in ("a", "r", "b")}
        (folder / "router.toml").write_text(ROUTER.format(folder=folder))

    def __enter__(self):
        a, r, b = self.names.values()
        for name in (a, r, b):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for host, interface, net in ((a, "lan0", "10.1.0"), (b, "wan0", "10.9.0")):
            run("ip", "link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", interface, "netns", r)
            for name, link, last in ((host, "eth0", 2), (r, interface, 1)):
                run("ip", "-n", name, "address", "add", f"{net}.{last}/24", "dev", link)
                run("ip", "-n", name, "link", "set", link, "up")
            run("ip", "-n", host, "route", "add", "default", "via", f"{net}.1")
        run("ip", "netns", "exec", r, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], check=False)

    def start(self, *command, host=None):
        where = ["ip", "netns", "exec", self.names[host]] if host else []
        log = open(self.folder / f"log-{len(self.processes)}", "w+b")
        process = subprocess.Popen([*where, *map(str, command)], stdout=log, stderr=subprocess.STDOUT, env=os.environ | {
            "EVENKEEL_RUNTIME_DIR": str(self.folder / "run"), "EVENKEEL_STATE_DIR": str(self.folder / "state")})
        process.log = log.name
        self.processes.append(process)
        return process

    def router(self):
        return self.start(EVENKEEL, "run", self.folder / "router.toml", host="r")

    def traffic(self):
        for port in (5201, 5202, 5203, 5204):
            self.start("iperf3", "-s", "-p", port, host="b")
        time.sleep(1)
        client = ("iperf3", "-c", "10.9.0.2", "-t", "600")
        self.start(*client, "-p", "5201", "-P", "3", host="a")
        self.start(*client, "-p", "5202", "-P", "4", host="a")
        self.start(*client, "-p", "5203", "-u", "-b", "4M", "-l", "1200", host="a")
        self.start(*client, "-p", "5204", "-u", "-b", "300k", "-l", "160", "-S", "184", host="a")
        # Something in the other direction.
        self.start(*client, "-p", "5201", "-R", host="a")

    def serve(self, listen):
        return self.start(EVENKEEL, "serve", "--listen", listen, "--history", self.folder / "past", "--history-size", "4MiB", "--hook",
                          f"echo $EVENKEEL_ALARM $EVENKEEL_ABOUT $EVENKEEL_STATE >> {self.folder}/told", self.folder / "edge-monitor.sock")

    def prometheus(self, target):
        """Debian's, with the scrape and the alerts of packaging/, a second apart."""
        packaging = Path(__file__).resolve().parent.parent / "packaging"
        run("promtool", "check", "rules", packaging / "prometheus-alerts.yml")
        config = self.folder / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(packaging / "prometheus-alerts.yml")],
            "scrape_configs": [{"job_name": "evenkeel", "static_configs": [{"targets": [target]}]}]}))
        run("promtool", "check", "config", config)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.start("prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder}/tsdb", f"--web.listen-address={address}", "--log.level=warn")
        return f"http://{address}/api/v1/query?query="

    def port(self, state):
        run("ip", "-n", self.names["r"], "link", "set", "lan0", state)

    def ctl(self, *words):
        return run(EVENKEEL, "ctl", "--socket", self.folder / "edge.sock", *words)


def until(what, holds):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            found = holds()
        except OSError:
            found = None
        if found:
            return found
        if time.monotonic() > end:
            sys.exit(f"not so within {PATIENCE} s: {what}")
        time.sleep(0.3)


def asked(url):
    with urllib.request.urlopen(url) as reply:
        return json.load(reply)


def firing(prometheus):
    query = urllib.parse.quote('ALERTS{alertname="EvenkeelAlarm",alertstate="firing"}')
    return [alert["metric"]["alarm"] for alert in asked(prometheus + query)["data"]["result"]]


def alarm_fires_and_clears(bed, page, url, prometheus):
    """A port goes down and comes back; the page, Prometheus and the hook are told both."""
    query = urllib.parse.quote("sum(rate(evenkeel_link_class_sent_bytes_total{link=\"wan\"}[10s]))*8")
    until("Prometheus has the rate of the link", lambda: 5e6 < float((asked(prometheus + query)["data"]["result"] or [{"value": [0, 0]}])[0]["value"][1]) < 25e6)
    if "port_down" in firing(prometheus):
        sys.exit("an alert fires although all ports are up")
    bed.port("down")
    until("the page shows the alarm", lambda: "port lan: interface lan0 is down" in text(page, "#alarms"))
    until("the alert fires", lambda: "port_down" in firing(prometheus))
    look(page, 1280, "light", "alarm")
    bed.port("up")
    until("the page has no alarm", lambda: "lan0" not in text(page, "#alarms"))
    until("the alert is over", lambda: "port_down" not in firing(prometheus))
    told = (bed.folder / "told").read_text().splitlines()
    if [line for line in told if line.startswith("port_down lan")] != ["port_down lan raised", "port_down lan cleared"]:
        sys.exit(f"the hook was told {told}")
    if not {"raised", "cleared"} <= {mark["kind"] for mark in asked(url + "api/v1/routers/edge/marks")["marks"]}:
        sys.exit("the alarm is not among what happened")


# This router has no admission: what asks for it has no answer here.
UNANSWERED = re.compile("evenkeel_link_admission_")


def dashboard_is_answered(prometheus):
    """Each question of the shipped dashboard has an answer from what was scraped."""
    dashboard = json.loads((Path(__file__).resolve().parent.parent / "packaging" / "grafana-dashboard.json").read_text())

    def questions(part):
        if isinstance(part, dict):
            yield from [part["expr"]] if "expr" in part else []
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from questions(inner)

    asked_for = sorted(set(questions(dashboard)))
    for question in asked_for:
        query = question.replace("$__rate_interval", "10s").replace("$router", ".*").replace("$link", ".*")
        reply = asked(prometheus + urllib.parse.quote(query))
        if reply["status"] != "success" or bool(reply["data"]["result"]) == bool(UNANSWERED.search(question)):
            sys.exit(f"the dashboard asks {query}: {reply}")
    print(f"the dashboard's {len(asked_for)} questions are answered")


def browser():
    options = webdriver.ChromeOptions()
    # Without its sandbox, because this runs as root; it opens nothing but our page.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--disable-extensions"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def text(page, selector):
    return page.execute_script("return document.querySelector(arguments[0])?.innerText || ''", selector)


def look(page, width, scheme, name):
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1 if width > 600 else 2, "mobile": width <= 600}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    time.sleep(2.5)
    wide = page.execute_script("return document.documentElement.scrollWidth")
    if wide > width:
        sys.exit(f"the page is {wide} pixels wide at {width}")
    height = page.execute_script("return document.documentElement.scrollHeight")
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics | {"height": height})
    time.sleep(1.5)
    page.save_screenshot(str(OUT / f"{name}.png"))
    print(f"{OUT}/{name}.png: {width} x {height}")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="evenkeel-page-") as folder, Bed(Path(folder)) as bed:
        router = bed.router()
        until("the router listens", lambda: (bed.folder / "edge-monitor.sock").exists())
        serve = bed.serve("127.0.0.1:0")
        log = Path(serve.log)
        url = until("it serves", lambda: re.search(r"serving (http://\S+)", log.read_text())).group(1)
        prometheus = bed.prometheus(url.split("/")[2])
        bed.traffic()
        page = browser()
        try:
            begun = time.monotonic()
            page.get(url)
            until("the page shows a link", lambda: "wan" in text(page, "#links"))
            print(f"the page shows links {time.monotonic() - begun:.2f} s after it was asked for")
            page.execute_script("document.querySelector('#range input[value=\"60\"]').click()")
            time.sleep(25)
            bed.ctl("rate", "wan", "8Mbit/s")
            time.sleep(15)
            bed.ctl("rate", "wan", "20Mbit/s")
            time.sleep(15)
            before = text(page, "#facts")
            until("values move", lambda: text(page, "#facts") != before)
            if "8Mbit/s" not in text(page, "#marks") or "uid 0" not in text(page, "#marks"):
                sys.exit(f"it is not told who changed the rate: {text(page, '#marks')}")
            until("the page shows who sends most", lambda: ":5203" in text(page, "#flows"))
            page.execute_script("document.querySelector('#flows tbody button').click()")
            until("a flow is explained", lambda: "routed to port" in text(page, "#explained"))
            until("the page shows where cycles go", lambda: "FairDrop is on" in text(page, "#cycles") and "backup" in text(page, "#sankey"))
            for width in (1280, 420):
                for scheme in ("light", "dark"):
                    look(page, width, scheme, f"{width}-{scheme}")
            dashboard_is_answered(prometheus)
            alarm_fires_and_clears(bed, page, url, prometheus)
            serve.terminate()
            serve.wait()
            serve = bed.serve(url.split("/")[2])
            page.execute_script("document.querySelector('#range input[value=\"86400\"]').click()")
            until("the past is there after serve was started anew", lambda: asked(url + "api/v1/routers/edge/history?from_ms=0")["windows"])
            until("the page is connected again", lambda: text(page, "#notice") == "")
            look(page, 1280, "light", "day")
            page.execute_script("document.querySelector('#range input[value=\"60\"]').click()")
            router.send_signal(signal.SIGTERM)
            router.wait()
            until("the page says that the router is gone", lambda: "does not answer" in text(page, "#notice"))
            look(page, 1280, "light", "router-gone")
            bed.router()
            until("the page says that it is back", lambda: text(page, "#notice") == "" and "answers" in text(page, "#status"))
            before = text(page, "#facts")
            until("values move again", lambda: text(page, "#facts") != before)
            until("the restart is told", lambda: "started anew" in text(page, "#marks"))
            # While serve was down nobody answered.
            severe = [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE" and entry["source"] != "network"]
            if severe:
                sys.exit(f"the browser complains: {json.dumps(severe, indent=1)}")
        finally:
            page.quit()
        with urllib.request.urlopen(url + "metrics") as reply:
            metrics = reply.read()
        (OUT / "metrics.txt").write_bytes(metrics)
        for path in ("", "page.js", "lists.js", "more.js", "page.css", "uPlot.js", "uPlot.css"):
            with urllib.request.urlopen(url + path) as reply:
                print(f"/{path}: {len(reply.read())} bytes")
    print("the page opens, moves, and survives a restart of its router")


if __name__ == "__main__":
    main()

// Keeps a page up to date: after an event, the parts marked data-live are taken from the page as it is now.
"use strict";

const AT_MOST_SHARE = 10; // a page that took 400 ms to make is requested again after 4 s at the earliest

const UNITS = [["days", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const inUtc = () => localStorage.getItem("zone") !== "local";

function ago(seconds) {
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) || ["s", 1];
  const count = Math.floor(Math.abs(seconds) / size);
  const text = `${count} ${unit === "days" && count === 1 ? "day" : unit}`;
  if (count === 0) return "now";
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

function absolute(at) {
  const zone = inUtc() ? "UTC" : undefined;
  const format = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone: zone });
  const name = new Intl.DateTimeFormat("en", { timeZone: zone, timeZoneName: "short" }).formatToParts(at);
  const shown = name.find((part) => part.type === "timeZoneName").value;
  return inUtc() ? `${format.format(at)}Z` : `${format.format(at)} ${shown}`;
}

function showTimes(root) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    time.title = absolute(at);
    time.textContent = time.dataset.absolute === undefined ? ago((now - at) / 1000) : time.title;
  }
}

function showZone() {
  const button = document.getElementById("zone");
  if (!button) return;
  button.hidden = false;
  button.textContent = inUtc() ? "UTC" : "Local time";
  button.addEventListener("click", () => {
    localStorage.setItem("zone", inUtc() ? "local" : "utc");
    button.textContent = inUtc() ? "UTC" : "Local time";
    showTimes(document);
    drawAll(document);
  });
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const STYLES = {
  feasible: "--good", infeasible: "--bad", unsure: "--warn", censored: "--warn", trials: "--soft",
  believed: "--strong", band: "--strong", measured: "--good", refused: "--bad",
  predicted: "--strong", "breaks a limit": "--bad", held: "--strong", importance: "--strong",
  baseline: "--text", best: "--strong", "best so far": "--strong", now: "--strong", "Pareto front": "--info",
  hold: "--good", trial: "--info", original: "--soft", failsafe: "--warn", events: "--text", highest: "--soft",
};

function zoned(x) {
  if (inUtc() || typeof x !== "string" || !x.endsWith("Z")) return x;
  const at = new Date(x);
  return new Date(at - 60000 * at.getTimezoneOffset()).toISOString().slice(0, -1);
}

function draw(chart) {
  const text = chart.querySelector("script").textContent;
  const plot = chart.querySelector(".plot");
  if (!window.Plotly || !plot) return;
  const figure = JSON.parse(text);
  const line = colour("--line");
  for (const trace of figure.data) {
    const own = colour(STYLES[trace.name] || "--info");
    trace.type = trace.type || "scatter";
    if (trace.type === "scatter") {
      trace.marker = { color: own, ...trace.marker };
      trace.line = { color: own, ...trace.line };
      trace.textfont = { color: own };
      trace.x = trace.x.map(zoned);
    } else trace.marker = { color: own };
  }
  for (const shape of figure.layout.shapes || []) shape.line = { color: colour("--bad"), width: 2, dash: "dash" };
  for (const note of figure.layout.annotations || []) {
    note.font = { color: colour("--text") };
    note.bgcolor = colour("--card");
    note.arrowcolor = colour("--text");
  }
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
  const layout = {
    ...figure.layout,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--text") },
    margin: { l: 56, r: 12, t: 8, b: 48 },
    legend: { orientation: "h", y: 1.12 },
    hoverlabel: { align: "left" },
  };
  for (const name of Object.keys(figure.layout)) {
    if (!/^[xy]axis\d*$/.test(name)) continue;
    layout[name] = { ...axis, ...figure.layout[name] };
    if (layout[name].type === "date") layout[name].hoverformat = `%Y-%m-%d %H:%M:%S${inUtc() ? "Z" : ""}`;
    if (layout[name].range) layout[name].range = layout[name].range.map(zoned);
  }
  if (figure.layout.height) plot.classList.add("tall");
  window.Plotly.react(plot, figure.data, layout, { displayModeBar: false, responsive: true });
}

function drawAll(root) {
  for (const chart of root.querySelectorAll(".chart")) draw(chart);
}

function busy(part) {
  const active = document.activeElement;
  const typing = part.contains(active) && active.matches("input, select, textarea, summary, button");
  return typing || part.querySelector("details[open], input:checked");
}

function parts(root) {
  return [...root.querySelectorAll("[data-live][id]:not([data-fetch] *)")].map((part) => part.id).join();
}

function takeOver(page) {
  const there = parts(page); // before parts of it are moved
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const now = page.getElementById(part.id);
    if (!now || busy(part)) continue;
    if (part.classList.contains("chart")) {
      const data = part.querySelector("script");
      const fresh = now.querySelector("script").textContent;
      if (data.textContent !== fresh) {
        data.textContent = fresh;
        draw(part);
      }
      continue;
    }
    showTimes(now);
    if (part.innerHTML !== now.innerHTML) part.replaceWith(now);
  }
  const writing = document.querySelector("main :is(input, textarea, select):focus, main details[open]");
  if (parts(document) !== there && !writing) location.reload();
}

async function fetchParts() {
  for (const part of document.querySelectorAll("[data-fetch]")) {
    const answer = await fetch(part.dataset.fetch, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) continue;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    part.replaceChildren(...page.body.children);
    drawAll(part);
  }
}

let waiting = null;
let later = null;
let earliest = 0;

async function renew() {
  waiting = null;
  const began = performance.now();
  let again = false;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected) {
      location.reload();
      return;
    }
    const text = await answer.text();
    if (answer.ok) takeOver(new DOMParser().parseFromString(text, "text/html"));
  } catch {
    again = true;
  }
  const took = performance.now() - began;
  earliest = performance.now() + Math.max(2000, AT_MOST_SHARE * took);
  const growing = document.querySelector("[data-soon]");
  clearTimeout(later);
  if (growing) later = setTimeout(soon, 1000 * growing.dataset.soon);
  if (again) soon();
}

function soon() {
  if (waiting !== null || document.hidden) return;
  waiting = setTimeout(renew, Math.max(300, earliest - performance.now()));
}

function follow() {
  const study = document.body.dataset.follow;
  const lost = document.getElementById("lost");
  const wanted = study ? `&study=${encodeURIComponent(study)}` : "";
  const stream = new EventSource(`/v1/events/stream?plain=true${wanted}`);
  stream.onopen = () => {
    lost.hidden = true;
    soon(); // whatever happened since the page was made, or while nobody answered
  };
  stream.onerror = () => {
    lost.hidden = false;
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  };
  stream.onmessage = soon;
}

showZone();
showTimes(document);
setInterval(() => showTimes(document), 30000);
drawAll(document);
fetchParts();
if (document.querySelector("[data-live]")) {
  follow();
  setInterval(soon, 10000); // what a device is set to changes without an event
  document.addEventListener("visibilitychange", soon); // a hidden page is not renewed
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document));

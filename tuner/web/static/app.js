// Keeps a page up to date: after an event, the parts marked data-live are taken from the page as it is now.
"use strict";

const AT_MOST_SHARE = 100; // a page that took 40 ms to make is asked for again after 4 s at the earliest

function localTimes(root) {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  for (const time of root.querySelectorAll("time[datetime]")) {
    time.textContent = format.format(new Date(time.dateTime));
  }
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const STYLES = {
  feasible: "--good", infeasible: "--bad", unsure: "--warn", censored: "--warn", trials: "--soft",
  believed: "--strong", band: "--strong", measured: "--good", refused: "--bad",
  baseline: "--text", best: "--strong", "best so far": "--strong", now: "--strong", "Pareto front": "--info",
};

function draw(chart) {
  const text = chart.querySelector("script").textContent;
  const plot = chart.querySelector(".plot");
  if (!window.Plotly || !plot) return;
  const figure = JSON.parse(text);
  const line = colour("--line");
  for (const trace of figure.data) {
    const own = colour(STYLES[trace.name] || "--info");
    trace.type = "scatter";
    trace.marker = { color: own, ...trace.marker };
    trace.line = { color: own, ...trace.line };
    trace.textfont = { color: own };
  }
  for (const shape of figure.layout.shapes || []) shape.line = { color: colour("--bad"), width: 2 };
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
  const layout = {
    ...figure.layout,
    xaxis: { ...axis, ...figure.layout.xaxis },
    yaxis: { ...axis, ...figure.layout.yaxis },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--text") },
    margin: { l: 56, r: 12, t: 8, b: 48 },
    legend: { orientation: "h", y: 1.12 },
    hoverlabel: { align: "left" },
  };
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

function takeOver(page) {
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
    localTimes(now);
    if (part.innerHTML !== now.innerHTML) part.replaceWith(now);
  }
  const shown = [...document.querySelectorAll("[data-live][id]")].map((part) => part.id).join();
  const there = [...page.querySelectorAll("[data-live][id]")].map((part) => part.id).join();
  const writing = document.querySelector("main :is(input, textarea, select):focus, main details[open]");
  if (shown !== there && !writing) location.reload();
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
  if (waiting !== null) return;
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

localTimes(document);
drawAll(document);
if (document.querySelector("[data-live]")) {
  follow();
  setInterval(soon, 60000);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document));

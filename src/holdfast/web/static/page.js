// What the pages do by themselves: look again, tell times, draw charts, select rows, copy.
// No script and no style is written into a page: the content security policy forbids both.
(() => {
  "use strict";
  const PAUSED = "holdfast-paused";
  let source = null;

  // --- times

  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

  function length(seconds) {
    const [unit, size] = UNITS.find(([, size]) => seconds >= 2 * size) ?? UNITS.at(-1);
    return `${Math.floor(seconds / size)} ${unit}`;
  }

  function tellTimes(within) {
    const now = Date.now();
    for (const each of within.querySelectorAll("time[datetime]")) {
      const at = Date.parse(each.getAttribute("datetime"));
      if (Number.isNaN(at)) continue;
      const seconds = (at - now) / 1000;
      const text = seconds >= 0 ? `in ${length(seconds)}` : `${length(-seconds)} ago`;
      if (each.textContent !== text) each.textContent = text;
      if (!each.title) each.title = new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
    }
  }

  // --- looking again

  const main = () => document.getElementById("main");
  const isPaused = () => sessionStorage.getItem(PAUSED) === "1";

  function keep(old, next) {
    if (old.nodeType !== 1) return true;
    if (old.matches("[data-chart]")) {
      if (next.dataset.chart !== old.dataset.chart) { old.dataset.chart = next.dataset.chart; draw(old); }
      return false;
    }
    // What somebody types, selects or opens is theirs.
    return !old.matches("input, textarea, select, [data-keep]");
  }

  function show(html) {
    Idiomorph.morph(main(), html, {
      morphStyle: "innerHTML",
      ignoreActiveValue: true,
      callbacks: {
        beforeNodeMorphed: keep,
        beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
      },
    });
    htmx.process(main());
    furnish();
  }

  function follow() {
    if (source) { source.close(); source = null; }
    const address = main() && main().dataset.live;
    tellLive(address ? "connecting" : "");
    if (!address || isPaused() || document.hidden) { tellLive(isPaused() ? "paused" : ""); return; }
    source = new EventSource(address);
    source.addEventListener("open", () => tellLive("live"));
    source.addEventListener("look", (event) => { tellLive("live"); show(event.data); });
    source.addEventListener("trouble", () => tellLive("trouble"));
    source.addEventListener("error", () => tellLive("trouble"));
  }

  function tellLive(state) {
    const button = document.querySelector("[data-live-toggle]");
    if (!button) return;
    const words = { live: "Live", connecting: "Live", paused: "Paused", trouble: "No answer", "": "Live" };
    button.dataset.state = state;
    button.title = isPaused() ? "Look again by itself" : "Stop looking again";
    button.querySelector("[data-live-word]").textContent = words[state];
  }

  // --- charts

  const charts = new Map();

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // As formats.duration writes it.
  function duration(seconds) {
    if (seconds >= 120) return length(seconds);
    return seconds && seconds < 1 ? `${(seconds * 1000).toLocaleString(undefined, { maximumSignificantDigits: 3 })} ms` : `${seconds.toLocaleString(undefined, { maximumFractionDigits: 1 })} s`;
  }

  const MEASURES = {
    seconds: duration,
    percent: (v) => `${v.toLocaleString(undefined, { maximumFractionDigits: 1 })} %`,
    per_minute: (v) => v.toLocaleString(undefined, { maximumFractionDigits: 1 }),
  };

  function draw(box) {
    const told = JSON.parse(box.dataset.chart);
    const old = charts.get(box);
    if (old) { old.setData(told.data); return; }
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px Inter, system-ui" };
    const say = MEASURES[told.measure];
    const days = told.data[0].at(-1) - told.data[0][0] > 2 * 86400;
    const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
    const date = (at) => new Date(at * 1000).toLocaleDateString([], { month: "short", day: "numeric" });
    const value = (u, v) => v == null ? "–" : say(v);
    box.replaceChildren();  // the picture for pages without a script
    const made = new uPlot({
      width: Math.max(200, box.clientWidth), height: 150, padding: [10, 18, 0, 0],
      cursor: { points: { size: 6 }, drag: { setScale: false } },
      legend: { live: true },
      scales: { x: { range: (u) => [u.data[0][0], Math.max(u.data[0].at(-1), u.data[0][0] + 60)] }, y: { range: (u, low, high) => [0, Math.max(high || 0, told.least) * 1.1] } },
      axes: [{ ...axis, space: 70, size: 26, values: (u, all) => all.map(days ? date : clock) }, { ...axis, size: 58, values: (u, all) => all.map(say) }],
      series: [{ label: "At", value: (u, v) => v == null ? "–" : days ? `${date(v)}, ${clock(v)}` : clock(v) },
        ...told.series.map((each) => ({ label: each.label, stroke: colour(each.colour), width: 1.5, value,
          fill: each.fill ? colour(each.colour) + "22" : undefined, points: { show: false } }))],
    }, told.data, box);
    charts.set(box, made);
  }

  function drawAll() {
    for (const [box, made] of charts) if (!box.isConnected) { made.destroy(); charts.delete(box); }
    for (const box of document.querySelectorAll("[data-chart]")) draw(box);
  }

  function redraw() {
    for (const made of charts.values()) made.destroy();
    charts.clear();
    drawAll();
  }

  // --- selecting, copying

  function tellSelected() {
    for (const form of document.querySelectorAll("form[data-selects]")) {
      const chosen = form.querySelectorAll("input[name=id]:checked").length;
      for (const each of form.querySelectorAll("[data-selected]")) each.textContent = chosen ? chosen.toLocaleString() : "";
      for (const each of form.querySelectorAll("[data-needs-selected]")) each.disabled = !chosen;
      const all = form.querySelector("[data-select-all]");
      const boxes = form.querySelectorAll("input[name=id]");
      if (all) { all.checked = chosen > 0 && chosen === boxes.length; all.indeterminate = chosen > 0 && chosen < boxes.length; }
    }
  }

  async function copy(button) {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // not on plain http
      const box = document.createElement("textarea");
      box.value = text;
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    button.dataset.copied = "";
    say("Copied");
    setTimeout(() => delete button.dataset.copied, 1200);
  }

  // --- for those who listen, or have no mouse

  const chosen = () => document.querySelectorAll("form[data-selects] input[name=id]:checked").length;

  // Says something to a screen reader; what a page shows anew by itself is not said, it would never end.
  function say(text) {
    document.querySelector("[data-said]").textContent = text;
  }

  // A page that came by a link begins at its beginning, or where it asks for something.
  function arrive() {
    (main().querySelector("[autofocus]") || main()).focus({ preventScroll: true });
    say(document.title);
  }

  // Escape closes what is open around the focus, or leaves a question as its link does.
  function leave(where) {
    const open = where.closest("details[open]");
    if (open) {
      open.open = false;
      open.querySelector("summary").focus();
      return;
    }
    const away = document.querySelector("[data-escape]");
    if (away) away.click();
  }

  // --- all of it

  function furnish() {
    tellTimes(document);
    drawAll();
    tellSelected();
  }

  document.addEventListener("click", (event) => {
    const toggle = event.target.closest("[data-live-toggle]");
    if (toggle) {
      sessionStorage.setItem(PAUSED, isPaused() ? "0" : "1");
      follow();
      say(isPaused() ? "Looking again is paused" : "Looking again by itself");
    }
    const copying = event.target.closest("[data-copy]");
    if (copying) copy(copying);
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]"))
      for (const each of event.target.form.querySelectorAll("input[name=id]")) each.checked = event.target.checked;
    tellSelected();
    if (event.target.matches("[data-select-all], input[name=id]")) say(`${chosen()} selected`);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave(event.target);
  });
  document.addEventListener("visibilitychange", follow);
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.elt && event.detail.elt.id === "page") { arrive(); furnish(); follow(); }
  });
  window.addEventListener("resize", () => { clearTimeout(redraw.later); redraw.later = setTimeout(redraw, 150); });
  window.addEventListener("pageshow", (event) => { if (event.persisted) follow(); });
  window.addEventListener("pagehide", () => { if (source) source.close(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  setInterval(() => tellTimes(document), 1000);
  furnish();
  follow();
})();

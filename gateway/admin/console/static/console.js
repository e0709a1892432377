// What the pages do in the browser: they follow what happens, draw rates, and ask before an action.
(() => {
  "use strict";
  const KEPT = 300; // points of a chart
  const view = document.getElementById("view");
  const note = document.getElementById("following");
  const dialog = document.getElementById("dialog");
  let source = null;
  let returnTo = null;

  function tell(text) {
    note.textContent = text;
    note.hidden = !text;
  }

  // --- following

  function follow() {
    stop();
    if (!view.dataset.live || document.hidden) return;
    // The browser's own limit of connections counts over all tabs, so only pages in sight follow.
    source = new EventSource(view.dataset.live + location.search);
    source.onopen = () => tell("");
    source.onmessage = (event) => show(JSON.parse(event.data).html);
    source.addEventListener("ended", () => location.reload());
    source.addEventListener("refused", (event) => tell(JSON.parse(event.data).text));
    source.onerror = () => {
      const closed = source && source.readyState === EventSource.CLOSED;
      tell(closed ? "This page does not follow what happens now: load it again." : "The connection is lost; trying again…");
      if (closed) leave();
    };
  }

  // Where the session has ended, the page leads to the log-in.
  async function leave() {
    const page = await fetch(location.href, { redirect: "manual" }).catch(() => null);
    if (page && page.type === "opaqueredirect") location.reload();
  }

  function stop() {
    if (source) source.close();
    source = null;
  }

  function show(html) {
    const active = document.activeElement;
    const chosen = new Set([...view.querySelectorAll("input:checked")].map((one) => one.id));
    Idiomorph.morph(view, html, { morphStyle: "innerHTML" });
    for (const one of view.querySelectorAll("input[type=checkbox]")) one.checked = chosen.has(one.id);
    htmx.process(view);
    // What had the focus may be no more.
    if (active && !active.isConnected) view.focus();
    sample();
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : follow()));
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  // --- charts: the rates between two looks

  const charts = [...document.querySelectorAll(".chart")].map((place) => ({
    place,
    lines: place.dataset.lines.split(" "),
    last: null,
    points: [[], ...place.dataset.lines.split(" ").map(() => [])],
    plot: null,
  }));

  function sample() {
    for (const chart of charts) {
      const from = document.getElementById(chart.place.dataset.from);
      if (!from) continue;
      const now = { at: Number(from.dataset.at) / 1000, values: chart.lines.map((name) => Number(from.dataset[name])) };
      const last = chart.last;
      if (last && now.at <= last.at) continue;
      chart.last = now;
      if (!last) continue;
      const seconds = now.at - last.at;
      chart.points[0].push(now.at);
      now.values.forEach((value, line) => chart.points[line + 1].push(Math.max(0, value - last.values[line]) / seconds));
      if (chart.points[0].length > KEPT) chart.points.forEach((points) => points.shift());
      draw(chart);
    }
  }

  function style(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function draw(chart) {
    if (chart.plot) {
      chart.plot.setData(chart.points);
      return;
    }
    const axis = { stroke: style("--quiet"), grid: { stroke: style("--line") }, ticks: { stroke: style("--line") } };
    chart.plot = new uPlot(
      {
        width: chart.place.clientWidth,
        height: 180,
        legend: { live: false, show: false },
        cursor: { drag: { setScale: false } },
        scales: { x: { range: () => [Math.min(chart.points[0][0], chart.points[0].at(-1) - 60), chart.points[0].at(-1)] }, y: { range: (plot, low, high) => [0, Math.max(1, high * 1.1)] } },
        axes: [axis, { ...axis, size: 60 }],
        series: [{}, ...chart.lines.map((name) => ({ label: name, stroke: style("--line-" + name), width: 2 }))],
      },
      chart.points,
      chart.place,
    );
    chart.place.dataset.drawn = "yes";
  }

  window.addEventListener("resize", () => {
    for (const { plot, place } of charts) if (plot) plot.setSize({ width: place.clientWidth, height: 180 });
  });

  // --- actions

  // Not before htmx knows the form in it.
  document.body.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target === dialog && dialog.firstChild && !dialog.open) {
      returnTo = document.activeElement;
      dialog.showModal();
    }
  });
  // A dialog's own answer is shown in it, whatever the status.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id !== "asked" || !event.detail.serverResponse.startsWith('<div class="asked"')) return;
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  });
  document.body.addEventListener("htmx:responseError", (event) => {
    // What refuses is a page.
    const page = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    const text = page.querySelector(".refused");
    tell(text ? text.textContent : "The server refused.");
    if (dialog.open) dialog.close();
  });
  document.body.addEventListener("htmx:sendError", () => tell("The server does not answer."));
  dialog.addEventListener("click", (event) => {
    const closing = event.target.closest("[data-close]");
    if (!closing || "go" in closing.dataset) return;
    event.preventDefault();
    dialog.close();
  });
  dialog.addEventListener("close", () => {
    const done = dialog.querySelector(".done");
    dialog.replaceChildren();
    if (done) follow();
    if (returnTo && returnTo.isConnected) returnTo.focus();
  });

  sample();
  follow();
  document.documentElement.dataset.ready = "yes";
})();

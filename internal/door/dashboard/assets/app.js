// Optional script of the pages: it keeps them up to date, copies commands, and handles a few keys. It builds no markup from data: the server
// renders the pages, and the script replaces the content with them.
"use strict";
(() => {
  const $ = (s, root = document) => root.querySelector(s);
  const all = (s, root = document) => [...root.querySelectorAll(s)];
  const keep = { get: (k) => { try { return localStorage.getItem(k); } catch { return null; } }, set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* not stored */ } } };

  const at = document.documentElement.dataset.base; // base path behind a proxy
  const database = document.documentElement.dataset.database;
  const of = database ? "?database=" + encodeURIComponent(database) : ""; // if there are several

  // A token in the URL never reaches the server's log: it follows the #, and is sent by POST. After a link from another
  // site, the user must submit it.
  const form = $("#login");
  if (form) {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (token) {
      history.replaceState(null, "", location.pathname);
      $("[name=token]", form).value = token;
      if ("itself" in form.dataset) form.requestSubmit();
    }
    return;
  }

  const pulse = $("#pulse"), said = $("#pulse-said"), every = $("#pulse-every");
  let source, last = 0, told = Date.now(), timer, stale;

  const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });
  const show = (state, text) => {
    if (!pulse || pulse.dataset.state === state && said.textContent === text) return;
    pulse.dataset.state = state;
    said.textContent = text;
  };
  const cold = () => show("stale", "Stale since " + clock(told));

  // chosen returns whether the user has selected something in a list.
  const chosen = (part) => all("option", part).some((o) => o.selected !== o.defaultSelected);

  // fresh fetches this page again and replaces the changed parts, except those where the user is selecting.
  let busy = false;
  const fresh = async () => {
    if (busy || document.hidden) return;
    busy = true;
    last = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { "X-Live": "1", Accept: "text/html" }, redirect: "error", signal: AbortSignal.timeout(30000) });
      if (!answer.ok) throw new Error(answer.status);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      dress(next);
      for (const old of all("[data-live]")) {
        const now = next.getElementById(old.id);
        if (!now || now.innerHTML === old.innerHTML || old.contains($("input:checked, details[open]:not(.menu)", old)) || old.contains($("input:focus, select:focus", old)) || chosen(old)) continue;
        const focus = document.activeElement, inside = old.contains(focus);
        const place = inside ? all("a, button, [tabindex]", old).indexOf(focus) : -1;
        old.replaceWith(document.adoptNode(now));
        if (place >= 0) all("a, button, [tabindex]", now)[place]?.focus();
      }
      told = Date.now();
      show("live", "Live");
    } catch { cold(); } finally { busy = false; }
  };

  const pace = () => Number(every.value) * 1000;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(fresh, Math.max(0, last + pace() - Date.now()));
  };
  const watch = () => {
    source?.close();
    clearTimeout(stale);
    if (!pace()) { show("off", "Not updated"); return; }
    if (document.hidden) return;
    source = new EventSource(at + "/api/v1/events" + of);
    const alive = () => { clearTimeout(stale); stale = setTimeout(fresh, 40000); };
    source.addEventListener("status", () => { alive(); soon(); });
    source.addEventListener("problem", cold);
    source.addEventListener("error", () => { // a browser reconnects by itself, except after an error status
      cold();
      if (source.readyState === EventSource.CLOSED) { clearTimeout(stale); stale = setTimeout(watch, 5000); }
    });
    alive();
  };
  if (pulse && pulse.dataset.follows === "yes") {
    pulse.hidden = false;
    every.value = keep.get("every") ?? "5";
    if (!every.value) every.value = "5";
    every.addEventListener("change", () => { keep.set("every", every.value); watch(); if (pace()) soon(); });
    document.addEventListener("visibilitychange", () => { if (document.hidden) source?.close(); else { watch(); soon(); } });
    addEventListener("pagehide", () => source?.close());
    watch();
  }

  // Load slow content after the page.
  if ($("[data-again]")) {
    fresh();
    document.addEventListener("visibilitychange", fresh, { once: true });
  }

  // Times are in UTC, as in logs, or on request in the local time zone.
  const zone = $("#zone");
  const times = (root) => {
    const local = keep.get("zone") === "local";
    if (zone) zone.textContent = local ? "Local times" : "UTC times";
    for (const t of all("time[datetime]", root)) {
      const when = new Date(t.dateTime);
      t.title = t.title || when.toString();
      if (local) t.textContent = when.toLocaleString("sv-SE");
      else t.textContent = when.toISOString().slice(0, 19).replace("T", " ");
    }
  };
  if (zone) {
    zone.hidden = false;
    zone.addEventListener("click", () => { keep.set("zone", keep.get("zone") === "local" ? "utc" : "local"); times(document); });
  }

  // Copy a command.
  document.addEventListener("click", (e) => {
    const button = e.target.closest("button[data-copy]");
    if (!button) return;
    const text = button.dataset.copy === "before" ? button.previousElementSibling.textContent : $(button.dataset.copy).textContent;
    navigator.clipboard?.writeText(text).then(() => {
      const word = button.textContent;
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = word; }, 1500);
    });
  });

  // A chart shows the figures of the time under the pointer, from the table below it.
  let pointed;
  const point = (e) => {
    const chart = e.target.closest?.("figure[data-columns]");
    if (pointed && pointed.chart !== chart) {
      pointed.read.textContent = pointed.text;
      pointed.cursor.setAttribute("visibility", "hidden");
      pointed = null;
    }
    if (!chart) return;
    const svg = $("svg", chart), box = svg.getBoundingClientRect(), rows = all("tbody tr", chart.closest("section"));
    const left = 62, right = 340, wide = 360; // as in chart.go
    const part = ((e.clientX - box.left) / box.width * wide - left) / (right - left);
    const row = rows[Math.min(rows.length - 1, Math.max(0, Math.round(part * (rows.length - 1))))];
    if (!row) return;
    pointed ??= { chart, read: $(".read", chart), text: $(".read", chart).textContent, cursor: $(".cursor", chart) };
    const figures = chart.dataset.columns.trim().split(" ").map((c) => row.cells[Number(c) + 1].textContent);
    pointed.read.textContent = row.cells[0].textContent + ": " + figures.join(" / ");
    const x = left + row.sectionRowIndex / Math.max(1, rows.length - 1) * (right - left);
    pointed.cursor.setAttribute("d", "M" + x + " 8V132");
    pointed.cursor.setAttribute("visibility", "visible");
  };
  addEventListener("pointermove", point);
  addEventListener("pointerdown", point);

  // Select all rows of a table.
  document.addEventListener("change", (e) => {
    if (!e.target.matches("[data-all]")) return;
    for (const box of all("input[name=key]", e.target.closest("form"))) box.checked = e.target.checked;
  });

  // Elements that only the script shows, on this page and on its updates.
  function dress(root) {
    times(root);
    for (const b of all("button[data-copy]", root)) b.hidden = !navigator.clipboard;
    for (const box of all("[data-all]", root)) box.hidden = false;
  }
  dress(document);

  // Keys: / for search, ? for help, g and a letter for a page.
  const places = { o: "/", p: "/pipelines", r: "/row", s: "/search", q: "/queue", e: "/errors", d: "/dead-letters", y: "/system", m: "/models", c: "/checks", a: "/audit" };
  let going = 0;
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, select, textarea")) return;
    if (Date.now() - going < 1500 && places[e.key]) { going = 0; location.href = at + places[e.key] + of; return; }
    going = e.key === "g" ? Date.now() : 0;
    if (e.key === "/") {
      e.preventDefault();
      const box = $("main input[type=search]");
      if (box) box.focus(); else location.href = at + "/search" + of;
    }
    if (e.key === "?") location.href = at + "/help" + of;
  });
})();

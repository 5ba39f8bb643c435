// The page of `fencelock serve`. Everything that came from the store is set as text, never as HTML.

const PAGE = 100;
/** The most grants in the list, and the most places that a lane keeps. */
const KEPT = 200;
/** The most lanes that are shown, and the most that are kept. */
const LANES = 8;
const LANES_KEPT = 300;
/** The queues of the lanes are read no more often. */
const LANES_EVERY_MS = 500;
/** The most rows of a lane for grants and for waits: the others share the last row. */
const HELD_ROWS = 4;
const WAIT_ROWS = 40;
/** The fewest waiters at which the bar of waiters is full. */
const FULL = 10;
const TOKEN = 'fencelock-token';
const $ = (id) => document.getElementById(id);

let token = sessionStorage.getItem(TOKEN) ?? '';
let news = null; // the last event
let skip = 0;
let cls = null; // the class that is shown, or all
let chosen = null; // the name and the store of the lock whose queue is shown
let first = null; // the first lock of the list, whose queue is shown until one is chosen
let meant = null; // the grant that the dialog is about
let events = []; // the last grants, oldest first
let lastEvent = 0;
let lost = null; // since when the server does not answer
let lanesRead = 0; // when the queues of the lanes were read last
const opened = Date.now();
const lanes = new Map(); // by store and name
const watched = new Map(); // by store: since when and until when this page has watched it, and the gaps in between

const headers = (more = {}) => (token ? { ...more, Authorization: `Bearer ${token}` } : more);

/** Text in which nothing turns round or hides what is next to it. */
const plain = (text) => text.replace(/[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

/** An element with text in it. */
function element(tag, text = '', kind = '') {
  const made = document.createElement(tag);
  made.textContent = plain(text);
  if (kind) made.className = kind;
  return made;
}

/** Sets text only where it changed, so that selections and screen readers are left alone. */
function say(at, text) {
  const said = plain(text);
  if (at.textContent !== said) at.textContent = said;
}

/** Makes the children of `list` those of `items`: kept by key, so that the focus stays where it is. */
function reconcile(list, items, key, make, update) {
  const old = new Map([...list.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, at) => {
    const name = key(item);
    let child = old.get(name);
    if (child) old.delete(name);
    else {
      child = make(item);
      child.dataset.key = name;
    }
    if (list.children[at] !== child) list.insertBefore(child, list.children[at] ?? null);
    update(child, item);
  });
  old.forEach((child) => child.remove());
}

function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (ms < 10000) return `${(Math.max(0, ms) / 1000).toFixed(1)} s`;
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

/** The time by the clock of the store. */
const now = (store) => Date.parse(news?.stores.find((one) => one.store === store)?.now);

/** How long ago, by the clock of the store. */
function age(since, store) {
  const ms = now(store) - Date.parse(since);
  return Number.isNaN(ms) ? '' : span(ms);
}
/** Shows the queue of a lock, and makes the address of the page a link to it. */
function choose(name, store) {
  chosen = { name, store };
  history.replaceState(null, '', `#${new URLSearchParams(store ? { lock: name, store } : { lock: name })}`);
  refresh();
}
/** Closes the queue. */
function unchoose() {
  chosen = null;
  history.replaceState(null, '', location.pathname);
  refresh();
}
/** Chooses the lock that the address of the page names. */
function fromAddress() {
  const meant = new URLSearchParams(location.hash.slice(1));
  if (meant.has('lock')) choose(meant.get('lock'), meant.get('store'));
}
const isChosen = (name, store) => name === chosen?.name && (chosen.store ?? store) === store;
/** The store's name, where there are several. */
const named = (store) => (news?.stores.length > 1 ? store : '');
const clock = (time) => new Date(time).toLocaleTimeString();
const joined = (parts) => parts.filter(Boolean).join(' · ');

function health(state, text) {
  $('health').dataset.state = state;
  say($('health'), text);
  document.body.classList.toggle('stale', state !== 'up');
}

function showNews() {
  say($('store'), news.stores.map((one) => `${one.store} (${one.layout})`).join(', '));
  // Not in the text of the state: that is read out whenever it changes.
  say($('took'), `last look ${Math.max(...news.stores.map((one) => one.took_ms))} ms`);
  const down = news.stores.find((one) => one.error);
  if (down) health('down', `${named(down.store) || 'the store'} cannot be read since ${clock(down.since)}: ${down.error}`);
  else if (news.stores.every((one) => one.up)) health('up', named('all stores answer') || 'the store answers');
  else health('unknown', 'the store has not been looked at yet');
  const all = { class: null, locks: 0, holders: 0, waiting: 0 };
  for (const one of news.classes) for (const what of ['locks', 'holders', 'waiting']) all[what] += one[what];
  const shown = news.classes.length > 1 ? [all, ...news.classes] : [all];
  reconcile($('classes'), shown, (one) => JSON.stringify(one.class), (one) => {
    const button = element('button');
    button.type = 'button';
    button.addEventListener('click', () => { cls = one.class; skip = 0; refresh(); });
    button.append(element('span', one.class ?? 'all locks'));
    for (const what of ['locks', 'holders', 'waiting']) {
      const figure = element('span', '', what);
      figure.append(element('b'), element('small', ` ${what}`));
      button.append(figure);
    }
    return button;
  }, (button, one) => {
    button.setAttribute('aria-pressed', String(one.class === cls));
    for (const what of ['locks', 'holders', 'waiting']) {
      const figure = button.querySelector(`.${what}`);
      figure.classList.toggle('none', one[what] === 0);
      say(figure.firstChild, String(one[what]));
    }
  });
}

function showGrants() {
  $('grants-note').hidden = events.length > 0;
  reconcile($('grants'), events.toReversed(), (event) => String(event.number), (event) => {
    const item = element('li');
    const held = event.held_ms === null ? '' : `held for ${span(event.held_ms)}`;
    const more = joined([`${event.who} as ${event.claim}`, held, event.token && `token ${event.token}`, named(event.store)]);
    item.append(element('span', clock(event.at), 'at'), element('b', event.name, 'who'), element('span', event.what, 'state'), element('span', more, 'more'));
    item.title = plain(more);
    return item;
  }, () => {});
}

async function ask(path, options = {}) {
  const response = await fetch(path, { cache: 'no-store', ...options, headers: headers(options.headers) });
  if (response.status === 401) login(token ? 'That token is wrong.' : '');
  return response;
}

/** The address of the queue of a lock. */
const pathOf = ({ name, store }) => `api/locks/${encodeURIComponent(name)}${store ? `?${new URLSearchParams({ store })}` : ''}`;

/** Asks for locks of the chosen class and with the wanted names. */
async function listed(more) {
  const wanted = new URLSearchParams({ contains: $('filter').value, ...more });
  if (cls !== null) wanted.set('class', cls);
  const response = await ask(`api/locks?${wanted}`);
  return response.ok ? response.json() : null;
}

async function showLocks() {
  const list = await listed({ urgent: $('order').value, skip, limit: PAGE });
  if (!list) return;
  if (skip >= list.matching && skip > 0) {
    skip = Math.max(0, Math.floor((list.matching - 1) / PAGE) * PAGE);
    return showLocks();
  }
  const end = skip + list.locks.length;
  const range = list.matching > PAGE ? `${skip + 1} to ${end} of ${list.matching}` : `${list.matching}`;
  const more = list.left_out ? `; ${list.left_out} more are not looked at` : '';
  say($('count'), `${range} shown${more}`);
  $('empty').hidden = list.matching > 0;
  first = list.locks[0] ?? null;
  $('pages').hidden = list.matching <= PAGE;
  $('back').disabled = skip === 0;
  $('next').disabled = end >= list.matching;
  const full = Math.max(FULL, ...list.locks.map((lock) => lock.waiting));
  reconcile($('locks'), list.locks, (lock) => JSON.stringify([lock.store, lock.name]), (lock) => {
    const row = element('tr');
    const [name, holder, held, waiters, purpose] = [element('td'), element('td'), element('td', '', 'figure'), element('td'), element('td')];
    const bar = element('div', '', 'waiters');
    name.append(element('button', lock.name), element('small'));
    holder.append(element('span'), element('small'));
    bar.append(element('span'), element('i'));
    waiters.append(bar);
    purpose.append(element('span'), element('div', '', 'wrong'));
    row.append(name, holder, held, waiters, purpose);
    row.addEventListener('click', () => choose(lock.name, lock.store));
    return row;
  }, (row, lock) => {
    const [name, holder, held, waiters, purpose] = row.children;
    const others = lock.holders > 1 ? ` +${lock.holders - 1}` : '';
    row.classList.toggle('chosen', isChosen(lock.name, lock.store));
    name.firstChild.setAttribute('aria-pressed', String(isChosen(lock.name, lock.store)));
    say(name.lastChild, named(lock.store));
    say(holder.firstChild, lock.holder ? `${lock.holder}${others}` : '–');
    say(holder.lastChild, ` ${lock.held_as}`);
    say(held, lock.since ? age(lock.since, lock.store) : '–');
    const [count, bar] = waiters.firstChild.children;
    say(count, String(lock.waiting));
    bar.style.width = `${(lock.waiting / full) * 100}%`;
    waiters.firstChild.classList.toggle('none', lock.waiting === 0);
    say(purpose.firstChild, lock.purpose ?? '');
    for (const cell of row.children) cell.title = cell.textContent;
    say(purpose.lastChild, lock.error ?? '');
  });
}

async function showQueue() {
  const shown = chosen ?? first;
  $('queue-section').hidden = shown === null;
  $('queue-section').classList.toggle('preview', chosen === null);
  $('close').hidden = chosen === null;
  if (shown === null) return;
  const { name, store } = shown;
  const response = await ask(pathOf(shown));
  const queue = await response.json();
  if (shown !== (chosen ?? first)) return;
  const contenders = response.ok ? queue.contenders : [];
  const rest = response.ok && queue.queued > contenders.length ? `, the first ${contenders.length} shown` : '';
  const held = queue.queued ? `${name}: ${queue.queued} in the queue${rest}` : `no client holds or waits for ${name}`;
  say($('queue-note'), response.ok ? held : queue.error);
  const breaks = response.ok ? queue.breaks.toReversed() : [];
  reconcile($('breaks'), breaks, (one) => `${one.at} ${one.token}`, (one) => {
    const item = element('li');
    const by = `by ${who({ host: one.by_host, pid: one.by_pid })}: ${one.reason}`;
    item.append(element('span', 'broken', 'wrong'), element('span', who(one), 'who'), element('span', new Date(one.at).toLocaleString([], { dateStyle: 'short', timeStyle: 'short' }), 'state'));
    item.append(element('span', joined([by, one.claim, one.token && `token ${one.token}`]), 'more'));
    return item;
  }, () => {});
  reconcile($('queue'), contenders, (one) => `${Boolean(chosen)} ${one.request} ${one.token} ${one.state}`, (one) => {
    const item = element('li');
    item.append(...['at', 'who', 'state', 'figure', 'more'].map((kind) => element('span', '', kind)));
    // Only of a chosen lock: the first of the list changes under the pointer.
    if (chosen && news?.allow_break && one.state === 'holder' && !one.foreign) {
      const button = element('button', 'Break…');
      button.setAttribute('aria-label', `Break the grant of ${who(one)}`);
      button.addEventListener('click', () => askToBreak({ name, store: queue.store }, one));
      item.append(button);
    }
    return item;
  }, (item, one) => {
    item.dataset.state = one.state;
    const [at, name, state, held, more] = item.children;
    say(at, `${one.position}.`);
    say(name, who(one));
    say(state, one.state);
    say(held, one.since ? age(one.since, queue.store) : '');
    const token = one.token && `token ${one.token}`;
    const process = one.process && `its process is ${one.process}`;
    const expires = one.expires && `expires ${one.expires}`;
    say(more, joined([one.claim === 'mutex' ? '' : one.claim, one.purpose, token, one.foreign, expires, process]));
  });
}

// The timeline. A lane has the places in the queue of a lock: since when each waits and holds, and when it ended, by the store's clock.

/** The lane of a lock; a new one if it has none. */
function laneOf(name, store) {
  const key = JSON.stringify([store, name]);
  const lane = lanes.get(key) ?? { key, name, store, places: new Map(), changed: 0 };
  // The map is in the order of use.
  lanes.delete(key);
  lanes.set(key, lane);
  if (lanes.size > LANES_KEPT) lanes.delete(lanes.keys().next().value);
  return lane;
}

/** The place of a request in a lane. A request can be granted again, with another token. */
function placeOf(lane, { request, token }, who) {
  const [waits, key] = [`${request} `, `${request} ${token ?? ''}`];
  const place = lane.places.get(key) ?? lane.places.get(waits) ?? { who, waits: null, held: null, end: null, bad: '' };
  if (key !== waits) lane.places.delete(waits);
  lane.places.set(key, Object.assign(place, { key, token }));
  if (lane.places.size > KEPT) lane.places.delete(lane.places.keys().next().value);
  return place;
}

/** Notes which times this page watches, and the grants that began and ended since the last event. */
function note() {
  for (const one of news.stores.filter((one) => one.now)) {
    const time = Date.parse(one.now);
    const seen = watched.get(one.store) ?? { from: time, to: time, gaps: [], every: 0, failed: false };
    const isBack = (seen.failed || lost !== null) && !one.error && time > seen.to;
    if (isBack) seen.gaps.push([seen.to, time]);
    if (!isBack && time > seen.to) seen.every = time - seen.to;
    Object.assign(seen, { to: time, wasDown: isBack && seen.failed, failed: Boolean(one.error) });
    watched.set(one.store, seen);
  }
  for (const event of news.timeline.filter((event) => event.number > lastEvent)) {
    events.push(event);
    lastEvent = event.number;
    const lane = laneOf(event.name, event.store);
    const place = placeOf(lane, event, event.who);
    lane.changed = Date.parse(event.at);
    place.held ??= lane.changed - (event.held_ms ?? 0);
    if (event.what !== 'ended') continue;
    place.end = lane.changed;
    if (watched.get(event.store)?.wasDown) place.bad ||= 'ended while the store did not answer';
    if (place.process) place.bad ||= `ended while its process was ${place.process}`;
  }
  events = events.slice(-KEPT);
  lost = null;
}

/** Notes the present queue of a lane. */
function noteQueue(lane, queue) {
  const time = now(lane.store);
  const there = new Set();
  for (const one of queue.contenders) {
    const place = placeOf(lane, one, who(one));
    const since = one.since ? Date.parse(one.since) : null;
    if (one.state === 'waiter') place.waits ??= since ?? time;
    else place.held = since ?? place.held ?? time;
    [place.end, place.process] = [null, one.process];
    there.add(place);
  }
  const isWhole = queue.queued === queue.contenders.length;
  for (const place of lane.places.values()) if (isWhole && !there.has(place)) place.end ??= time;
  for (const broken of queue.breaks) {
    const place = [...lane.places.values()].find((place) => place.token && place.token === broken.token);
    if (place) place.bad = `broken: ${broken.reason}`;
  }
}

/** The lanes to show: locks with waiters, the chosen lock, locks that changed hands, and others while there is room. */
function lanesOf(rows) {
  const length = minutes() * 60000;
  const contains = $('filter').value;
  const listed = rows.map((row) => Object.assign(laneOf(row.name, row.store), { row, class: row.class }));
  const names = new Set(listed.map((lane) => lane.key));
  for (const lane of lanes.values()) if (!names.has(lane.key)) lane.row = null;
  const has = (lane) => lane.name.includes(contains) && (cls === null || lane.class === cls);
  const changed = [...lanes.values()].filter((lane) => has(lane) && lane.changed > now(lane.store) - length);
  changed.sort((a, b) => b.changed - a.changed);
  const shown = new Set([...listed.filter(({ row }) => row.waiting || row.error), ...listed.filter((lane) => isChosen(lane.name, lane.store))]);
  for (const lane of [...changed, ...listed]) if (shown.size < LANES) shown.add(lane);
  const trouble = (lane) => lane.row?.waiting ?? 0;
  return [...shown].slice(0, LANES).sort((a, b) => trouble(b) - trouble(a) || (a.name < b.name ? -1 : 1));
}

/** How many minutes the timeline shows: as chosen, or as few as have room for what was watched. */
const minutes = () => Number($('minutes').value) || [1, 1.5, 2, 3, 4].find((most) => Date.now() - opened < most * 60000) || 5;

/** Puts each piece on the first row that is free when it begins; returns the number of rows. An end may be as early as `slack` before. */
function packed(pieces, most, slack = 0) {
  const rows = [];
  for (const piece of pieces.toSorted((a, b) => a.from - b.from)) {
    const free = rows.findIndex((last) => last.to - slack <= piece.from && last.from < piece.from);
    piece.row = free >= 0 ? free : Math.min(rows.length, most - 1);
    const before = rows[piece.row];
    if (free >= 0) before.to = Math.min(before.to, piece.from);
    if (!before || before.to < piece.to) rows[piece.row] = piece;
  }
  return rows.length;
}

/** Draws what a lane has of the time shown. */
function drawLane(track, lane) {
  const [until, seen] = [now(lane.store), watched.get(lane.store)];
  const start = until - minutes() * 60000;
  const part = (time) => Math.min(100, Math.max(0, ((time - start) / (until - start)) * 100));
  const held = [], waits = [];
  for (const place of lane.places.values()) {
    const [to, from] = [place.end ?? until, place.held];
    if (to < start) continue;
    const waited = place.waits && span((from ?? to) - place.waits);
    const title = joined([place.who, waited && `waited for ${waited}`, from && `held for ${span(to - from)}`, place.token && `token ${place.token}`, place.bad]);
    if (from !== null) held.push({ kind: 'held', key: place.key, from, to, place, title });
    if (place.waits !== null) waits.push({ kind: 'wait', key: place.key, from: place.waits, to: Math.max(from ?? to, place.waits), place, title });
  }
  // Only the look after the end of a grant shows the end.
  const heldRows = packed(held, HELD_ROWS, Math.max(1000, seen.every)) || 1;
  const waitRows = packed(waits, WAIT_ROWS);
  const [below, pitch] = [6 + heldRows * 20, waitRows > 12 ? 3 : 4];
  const gaps = [[start, seen.from], ...seen.gaps].filter(([from, to]) => to > start && to > from);
  const pieces = [
    ...gaps.map(([from, to]) => ({ kind: 'unseen', key: String(from === start ? 'before' : from), from, to, title: 'not watched by this page' })),
    ...held.map((piece) => ({ ...piece, top: 4 + piece.row * 20 })),
    ...waits.map((piece) => ({ ...piece, top: below + piece.row * pitch })),
    ...held.filter(({ place }) => place.bad).map((piece) => ({ ...piece, kind: 'mark', from: piece.to, top: 4 + piece.row * 20 })),
  ];
  track.style.height = `${below + waitRows * pitch + 4}px`;
  reconcile(track, pieces, (piece) => `${piece.kind} ${piece.key}`, (piece) => element('span', piece.kind === 'mark' ? '✕' : '', piece.kind), (child, piece) => {
    const width = part(piece.to) - part(piece.from);
    child.title = plain(piece.title);
    child.style.left = `${part(piece.from)}%`;
    if (piece.top !== undefined) child.style.top = `${piece.top}px`;
    if (piece.kind === 'mark') return;
    child.style.width = `${width}%`;
    if (piece.kind === 'wait') child.style.height = `${pitch > 3 ? 2 : 1}px`;
    if (piece.kind !== 'held') return;
    child.classList.toggle('open', piece.place.end === null);
    child.classList.toggle('bad', piece.place.bad !== '');
    say(child, width * track.clientWidth > 6000 ? piece.place.who : '');
  });
}

async function showLanes() {
  if (!news?.stores.some((one) => one.now)) return;
  const rows = (await listed({ urgent: true, limit: LANES }))?.locks ?? [];
  const shown = lanesOf(rows).filter((lane) => watched.has(lane.store));
  if (Date.now() - lanesRead >= LANES_EVERY_MS) {
    lanesRead = Date.now();
    // A lock that was broken keeps its record for the queue when its last place has gone.
    const read = shown.filter((lane) => lane.row || lane.changed > now(lane.store) - 10000);
    await Promise.all(read.map(async (lane) => {
      const response = await ask(pathOf(lane));
      if (response.ok) noteQueue(lane, await response.json());
    }));
  }
  reconcile($('axis'), [...Array(5).keys(), 5], String, () => element('span'), (child, at) => {
    const left = Math.round(minutes() * 12 * (5 - at));
    say(child, at === 5 ? 'now' : `−${Math.floor(left / 60)}:${String(left % 60).padStart(2, '0')}`);
  });
  say($('timeline-note'), `Watched since ${clock(opened)}, when this page was opened. Earlier events are from the store and the server.`);
  reconcile($('lanes'), shown, (lane) => lane.key, (lane) => {
    const item = element('li', '', 'lane');
    const [head, button] = [element('div'), element('button', lane.name)];
    button.title = plain(lane.name);
    button.addEventListener('click', () => choose(lane.name, lane.store));
    head.append(button, element('small'));
    item.append(head, element('div', '', 'track'));
    return item;
  }, (item, lane) => {
    const [head, track] = item.children;
    item.classList.toggle('chosen', isChosen(lane.name, lane.store));
    item.classList.toggle('waited', Boolean(lane.row?.waiting));
    say(head.lastChild, lane.row?.waiting ? `${lane.row.waiting} waiting` : lane.row?.holder ? 'held' : 'free');
    drawLane(track, lane);
  });
}

function who(one) {
  if (one.host && one.pid) return `pid ${one.pid} on ${one.host}`;
  return one.host ?? (one.client ? `client ${one.client}` : 'an unknown owner');
}

function askToBreak({ name, store }, one) {
  meant = { name, store, request: one.request };
  say($('break-whose'), joined([name, named(store), `held by ${who(one)}`, one.purpose]));
  say($('break-error'), '');
  $('reason').value = '';
  $('break').showModal();
  $('reason').focus();
}

async function breakIt() {
  const body = JSON.stringify({ store: meant.store, request: meant.request, reason: $('reason').value });
  const path = `api/locks/${encodeURIComponent(meant.name)}/break`;
  const response = await ask(path, { method: 'POST', body, headers: { 'Content-Type': 'application/json' } });
  if (response.ok) $('break').close();
  else say($('break-error'), (await response.json()).error);
}

function login(error) {
  $('login').hidden = false;
  document.querySelector('main').hidden = true;
  say($('login-error'), error);
  health('unknown', 'a token is needed');
}

/** Shows the locks, the timeline and the queue again. Calls meanwhile cause one more time. */
let refreshing = false;
let again = false;
async function refresh() {
  again = true;
  if (refreshing) return;
  refreshing = true;
  while (again) {
    again = false;
    try {
      if (news) showNews();
      await showLocks();
      await showQueue();
      await showLanes();
    } catch {
      // The stream of events shows the fault.
    }
  }
  refreshing = false;
}

/** Reads one stream of events to its end. */
async function follow() {
  const response = await ask('api/events');
  if (!response.ok) return response.status;
  $('login').hidden = true;
  document.querySelector('main').hidden = false;
  [lastEvent, events] = [0, []];
  $('grants').replaceChildren();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return response.status;
    text += value;
    const parts = text.split('\n\n');
    text = parts.pop();
    for (const part of parts.filter((part) => part.startsWith('data: '))) {
      news = JSON.parse(part.slice(6));
      note();
      showGrants();
      refresh();
    }
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let following = false;
async function start() {
  if (following) return;
  following = true;
  for (;;) {
    let status = 0;
    try {
      status = await follow();
    } catch {
      // Shown below.
    }
    if (status === 401) break;
    lost ??= Date.now();
    health('down', `fencelock serve does not answer since ${clock(lost)}`);
    await pause(1000);
  }
  following = false;
}

window.addEventListener('hashchange', fromAddress);
$('order').addEventListener('change', () => { skip = 0; refresh(); });
$('filter').addEventListener('input', () => { skip = 0; refresh(); });
$('minutes').addEventListener('change', refresh);
$('close').addEventListener('click', unchoose);
window.addEventListener('keydown', (event) => {
  const names = [...document.querySelectorAll('#locks button')];
  const at = names.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === 'Escape' && chosen && !$('break').open) unchoose();
  else if (event.key === '/' && event.target === document.body) $('filter').focus();
  else if (step && at >= 0) names[at + step]?.focus();
  else return;
  event.preventDefault();
});
$('back').addEventListener('click', () => { skip = Math.max(0, skip - PAGE); refresh(); });
$('next').addEventListener('click', () => { skip += PAGE; refresh(); });
$('break-no').addEventListener('click', () => $('break').close());
$('break-form').addEventListener('submit', (event) => { event.preventDefault(); breakIt(); });
$('login').addEventListener('submit', (event) => {
  event.preventDefault();
  token = $('token').value.trim();
  sessionStorage.setItem(TOKEN, token);
  $('token').value = '';
  start();
});
fromAddress();
start();

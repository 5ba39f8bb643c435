// The page of `fencelock serve`. Everything that came from the store is set as text, never as HTML.

const PAGE = 100;
const KEPT = 200;
const TOKEN = 'fencelock-token';
const $ = (id) => document.getElementById(id);

let token = sessionStorage.getItem(TOKEN) ?? '';
let news = null; // the last event
let skip = 0;
let cls = null; // the class that is shown, or all
let chosen = null; // the name and the store of the lock whose queue is shown
let meant = null; // the grant that the dialog is about
let events = []; // of the timeline, oldest first
let lastEvent = 0;
let lost = null; // since when this page hears nothing

const headers = (more = {}) => (token ? { ...more, Authorization: `Bearer ${token}` } : more);

/** Text in which nothing turns round or hides what stands beside it. */
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

/** How long ago, by the clock of the store. */
function age(since, store) {
  const of = news?.stores.find((one) => one.store === store);
  return since && of ? span(Date.parse(of.now) - Date.parse(since)) : '';
}
/** Shows the queue of a lock, and makes the address of the page a link to it. */
function choose(name, store) {
  chosen = { name, store };
  history.replaceState(null, '', `#${new URLSearchParams(store ? { lock: name, store } : { lock: name })}`);
  refresh();
}
/** Chooses the lock that the address of the page names. */
function fromAddress() {
  const meant = new URLSearchParams(location.hash.slice(1));
  if (meant.has('lock')) choose(meant.get('lock'), meant.get('store'));
}
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
    return button;
  }, (button, one) => {
    button.setAttribute('aria-pressed', String(one.class === cls));
    say(button, `${one.class ?? 'all'}: ${one.locks} locks, ${one.holders} holders, ${one.waiting} waiting`);
  });
}

function showTimeline() {
  for (const event of news.timeline) if (event.number > lastEvent) events.push(event);
  lastEvent = events.at(-1)?.number ?? lastEvent;
  events = events.slice(-KEPT);
  $('timeline-note').hidden = events.length > 0;
  reconcile($('timeline'), events.toReversed(), (event) => String(event.number), (event) => {
    const item = element('li');
    const held = event.held_ms === null ? '' : `held for ${span(event.held_ms)}`;
    item.append(element('span', `${clock(event.at)} ${event.name}`, 'head'));
    const what = `${event.what}: ${event.who} as ${event.claim}`;
    item.append(element('span', joined([what, event.token && `token ${event.token}`, held, named(event.store)]), 'more'));
    return item;
  }, () => {});
}

async function ask(path, options = {}) {
  const response = await fetch(path, { cache: 'no-store', ...options, headers: headers(options.headers) });
  if (response.status === 401) login(token ? 'That token is wrong.' : '');
  return response;
}

async function showLocks() {
  const wanted = new URLSearchParams({ contains: $('filter').value, urgent: $('order').value, skip, limit: PAGE });
  if (cls !== null) wanted.set('class', cls);
  const response = await ask(`api/locks?${wanted}`);
  if (!response.ok) return;
  const list = await response.json();
  if (skip >= list.matching && skip > 0) {
    skip = Math.max(0, Math.floor((list.matching - 1) / PAGE) * PAGE);
    return showLocks();
  }
  const end = skip + list.locks.length;
  const range = list.matching > PAGE ? `${skip + 1} to ${end} of ${list.matching}` : `${list.matching}`;
  const more = list.left_out ? `; ${list.left_out} more are not looked at` : '';
  say($('count'), `${range} shown${more}`);
  $('pages').hidden = list.matching <= PAGE;
  $('back').disabled = skip === 0;
  $('next').disabled = end >= list.matching;
  reconcile($('locks'), list.locks, (lock) => JSON.stringify([lock.store, lock.name]), (lock) => {
    const item = element('li');
    const button = element('button', lock.name, 'head');
    button.addEventListener('click', () => choose(lock.name, lock.store));
    item.append(button, element('span', '', 'more'), element('span', '', 'more wrong'));
    return item;
  }, (item, lock) => {
    const [button, more, wrong] = item.children;
    button.setAttribute('aria-pressed', String(lock.name === chosen?.name && (chosen.store ?? lock.store) === lock.store));
    const others = lock.holders > 1 ? ` and ${lock.holders - 1} more` : '';
    const who = lock.holder ? `${lock.holder}${others}` : 'nobody';
    const since = lock.since && `for ${age(lock.since, lock.store)}`;
    say(more, joined([`${lock.held_as}: ${who}`, since, lock.purpose, `${lock.waiting} waiting`, named(lock.store)]));
    say(wrong, lock.error ?? '');
  });
}

async function showQueue() {
  if (chosen === null) return;
  const shown = chosen;
  const { name, store } = shown;
  const of = store ? `?${new URLSearchParams({ store })}` : '';
  const response = await ask(`api/locks/${encodeURIComponent(name)}${of}`);
  const queue = await response.json();
  if (shown !== chosen) return;
  const contenders = response.ok ? queue.contenders : [];
  const rest = response.ok && queue.queued > contenders.length ? `, the first ${contenders.length} shown` : '';
  const held = queue.queued ? `${name}: ${queue.queued} in the queue${rest}` : `no client holds or waits for ${name}`;
  say($('queue-note'), response.ok ? held : queue.error);
  const breaks = response.ok ? queue.breaks.toReversed() : [];
  reconcile($('breaks'), breaks, (one) => `${one.at} ${one.token}`, (one) => {
    const item = element('li');
    const by = `by ${who({ host: one.by_host, pid: one.by_pid })}: ${one.reason}`;
    item.append(element('span', `broken ${one.at}: ${who(one)} as ${one.claim}`, 'head'));
    item.append(element('span', joined([by, one.token && `token ${one.token}`]), 'more'));
    return item;
  }, () => {});
  reconcile($('queue'), contenders, (one) => `${one.request} ${one.token} ${one.state}`, (one) => {
    const item = element('li');
    item.append(element('span', '', 'head'), element('span', '', 'more'));
    if (news?.allow_break && one.state === 'holder' && !one.foreign) {
      const button = element('button', 'Break…');
      button.setAttribute('aria-label', `Break the grant of ${who(one)}`);
      button.addEventListener('click', () => askToBreak({ name, store: queue.store }, one));
      item.append(button);
    }
    return item;
  }, (item, one) => {
    item.dataset.state = one.state;
    const [head, more] = item.children;
    if (head.children.length === 0) head.append(element('span'), element('span', '', 'state'));
    say(head.children[0], `${one.position}. ${who(one)} `);
    say(head.children[1], one.state);
    const since = one.since && `for ${age(one.since, queue.store)}`;
    const token = one.token && `token ${one.token}`;
    const process = one.process && `its process is ${one.process}`;
    const expires = one.expires && `expires ${one.expires}`;
    say(more, joined([one.claim, since, one.purpose, token, one.foreign, expires, process]));
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

/** Shows the list and the queue anew; those who ask meanwhile are answered by one more time. */
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
    } catch {
      // The stream of events tells what is wrong.
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
  [lastEvent, events, lost] = [0, [], null];
  $('timeline').replaceChildren();
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
      showTimeline();
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
      // Not there, or gone: said below.
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

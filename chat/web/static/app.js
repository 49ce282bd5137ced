// Optional features: live updates, keys, countdowns, screen reader texts and
// notifications. The pages work without this script.
'use strict'

const body = document.body
const byId = (id) => document.getElementById(id)

// announce makes a screen reader read a text.
function announce (text) {
  const live = byId('live')
  if (live) live.textContent = text
}

// A form that changes something is sent once: a second click could replace the first, or look like a failure.
let sentAt = -Infinity
document.addEventListener('submit', (e) => {
  if (e.target.method !== 'post') return
  if (performance.now() - sentAt < 5000) e.preventDefault()
  else sentAt = performance.now()
})
window.addEventListener('pageshow', (e) => { if (e.persisted) sentAt = -Infinity }) // the user came back

// Screen readers do not read a live region that a page begins with.
const note = document.querySelector('#note [role]')
if (note) announce(note.textContent)

// Submit the login form.
const loginForm = document.querySelector('form[data-submit-on-load]')
if (loginForm) loginForm.requestSubmit()

// The filter of the list applies at once.
const filter = byId('filter')
if (filter) filter.addEventListener('change', () => filter.requestSubmit())

// Countdowns.
function timeLeft (until) {
  const seconds = Math.floor((Date.parse(until) - Date.now()) / 1000)
  if (Number.isNaN(seconds)) return ''
  if (seconds <= 0) return body.dataset.textOver
  const parts = seconds >= 86400 ? [Math.floor(seconds / 86400) + ' d', Math.floor(seconds % 86400 / 3600) + ' h']
    : seconds >= 3600 ? [Math.floor(seconds / 3600) + ' h', Math.floor(seconds % 3600 / 60) + ' min']
      : seconds >= 60 ? [Math.floor(seconds / 60) + ' min', seconds % 60 + ' s'] : [seconds + ' s']
  return body.dataset.textLeft.replace('{time}', parts.join(' '))
}

function countDown () {
  for (const e of document.querySelectorAll('[data-until]')) {
    const text = timeLeft(e.dataset.until)
    if (e.textContent !== text) e.textContent = text
  }
}
if (body.dataset.textLeft) {
  countDown()
  setInterval(countDown, 1000)
}

// The event stream.
function showCount (n) {
  body.dataset.waiting = n
  document.title = (n > 0 ? '(' + n + ') ' : '') + body.dataset.title
}

function showDisconnected () {
  const p = byId('lost')
  if (p && p.hidden) {
    p.textContent = body.dataset.textLost
    p.hidden = false
  }
}

let lastEventId = '' // revision of the list on this page

function changed (e) {
  const c = JSON.parse(e.data)
  lastEventId = e.lastEventId
  if (c.stale) {
    location.reload()
    return
  }
  showCount(c.waiting)
  if (c.html) {
    const state = byId('state')
    const before = state && state.dataset.state
    const focused = state && state.contains(document.activeElement)
    window.htmx.swap(body, c.html, { swapStyle: 'none' })
    const now = byId('state')
    if (now && now.dataset.state !== before) {
      const result = byId('result')
      announce(body.dataset.textChanged + ' ' + (result ? result.textContent : ''))
      if (focused) byId('main').focus({ preventScroll: true })
    }
    countDown()
  }
  if (c.new > 0) {
    const text = body.dataset.textNew.replace('{n}', c.waiting)
    announce(text)
    notify(text, c.first)
  }
}

let stream = null
let hiddenList = null // AbortController of a hidden list that waits for the lock or holds it
let failures = 0 // failed connections in a row

// The address that the page came with may be out of date: put in what the page shows now.
function streamURL () {
  const url = new URL(body.dataset.stream, location.href)
  for (const [name, e] of [['state', byId('state')], ['told', byId('note')]]) {
    if (e && url.searchParams.has(name)) url.searchParams.set(name, e.dataset[name])
  }
  if (lastEventId && url.searchParams.has('rev')) url.searchParams.set('rev', lastEventId)
  return url.href
}

function openStream () {
  if (stream) return
  stream = new EventSource(streamURL())
  stream.addEventListener('change', changed)
  stream.addEventListener('over', () => { closeStream(); showDisconnected() })
  stream.addEventListener('open', () => { failures = 0; const p = byId('lost'); if (p) p.hidden = true })
  // The browser reconnects by itself. After the second failure the daemon is probably gone.
  stream.addEventListener('error', () => { if (stream && (stream.readyState === EventSource.CLOSED || ++failures > 1)) showDisconnected() })
}

function closeStream () {
  if (stream) stream.close()
  stream = null
}

if (body.dataset.stream && window.EventSource && window.htmx) {
  if (document.hidden) pageHidden(); else openStream()
  window.addEventListener('pagehide', closeStream)
  window.addEventListener('pageshow', (e) => { if (e.persisted) location.reload() })
  document.addEventListener('visibilitychange', () => { if (document.hidden) pageHidden(); else pageShown() })
}

// Browsers open at most six connections to one host. So a hidden request page closes
// its stream. Of all hidden lists, one keeps a stream for the title and notifications.
function pageHidden () {
  if (byId('waiting') && !navigator.locks) return
  closeStream()
  if (!byId('waiting') || hiddenList) return
  hiddenList = new AbortController()
  const { signal } = hiddenList
  navigator.locks.request('permesso-list', { signal }, () => new Promise((resolve) => {
    if (signal.aborted) return resolve()
    signal.addEventListener('abort', resolve)
    openStream()
  })).catch(() => {}) // aborted before it got the lock
}

function pageShown () {
  if (hiddenList) hiddenList.abort()
  hiddenList = null
  openStream()
}

// Desktop notifications, if the user switched them on.
const notificationsOn = () => { try { return localStorage.getItem('permesso-notify') === 'on' } catch { return false } }

function notify (text, first) {
  if (!notificationsOn() || !('Notification' in window) || Notification.permission !== 'granted' || !document.hidden) return
  const n = new Notification('permesso', { body: text, tag: 'permesso' })
  n.onclick = () => { window.focus(); if (first) location.href = body.dataset.base + first }
}

const notifySection = byId('notify')
if (notifySection && 'Notification' in window) {
  const button = byId('notify-button')
  const show = () => { button.textContent = notificationsOn() ? notifySection.dataset.textOff : notifySection.dataset.textOn }
  show()
  notifySection.hidden = false // not before: until then the button has no text
  button.addEventListener('click', async () => {
    const on = !notificationsOn()
    const refused = on && await Notification.requestPermission() !== 'granted'
    byId('notify-text').textContent = refused ? notifySection.dataset.textNo : ''
    if (refused) return
    localStorage.setItem('permesso-notify', on ? 'on' : 'off')
    show()
  })
}

// Keys. They are ignored in fields, when repeated, and just after the page has loaded.
const loadedAt = Date.now()
document.addEventListener('keydown', (e) => {
  if (body.dataset.keys !== 'on' || e.repeat || e.ctrlKey || e.altKey || e.metaKey || e.isComposing) return
  const target = e.target
  if (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName)) return
  if (!['a', 'd', 'n', 'u', '?'].includes(e.key) || Date.now() - loadedAt < 500) return
  const control = document.querySelector('[data-key="' + e.key + '"]')
  if (control && !control.disabled) {
    e.preventDefault()
    announce(control.textContent)
    control.click()
  }
})

// What the pages do besides being pages: they listen for changes, know a few keys,
// count down, and say what happened. Everything here has a way without it.
'use strict'

const body = document.body
const byId = (id) => document.getElementById(id)

// say has a screen reader say something.
function say (text) {
  const live = byId('live')
  if (live) live.textContent = text
}

// The door: its form is sent as soon as it is there.
const door = document.querySelector('form[data-send-at-once]')
if (door) door.requestSubmit()

// Times that run out.
function left (until) {
  const seconds = Math.floor((Date.parse(until) - Date.now()) / 1000)
  if (Number.isNaN(seconds)) return ''
  if (seconds <= 0) return body.dataset.sayOver
  const parts = seconds >= 86400 ? [Math.floor(seconds / 86400) + ' d', Math.floor(seconds % 86400 / 3600) + ' h']
    : seconds >= 3600 ? [Math.floor(seconds / 3600) + ' h', Math.floor(seconds % 3600 / 60) + ' min']
      : seconds >= 60 ? [Math.floor(seconds / 60) + ' min', seconds % 60 + ' s'] : [seconds + ' s']
  return body.dataset.sayLeft.replace('{time}', parts.join(' '))
}

function countDown () {
  for (const e of document.querySelectorAll('[data-until]')) {
    const text = left(e.dataset.until)
    if (e.textContent !== text) e.textContent = text
  }
}
if (body.dataset.sayLeft) {
  countDown()
  setInterval(countDown, 1000)
}

// The stream of changes.
function badge (n) {
  body.dataset.waiting = n
  document.title = (n > 0 ? '(' + n + ') ' : '') + body.dataset.title
}

function lost () {
  const p = byId('lost')
  if (p && p.hidden) {
    p.textContent = body.dataset.sayLost
    p.hidden = false
  }
}

let heard = '' // of the list: how far its page knows it

function changed (e) {
  const c = JSON.parse(e.data)
  heard = e.lastEventId
  if (c.stale) {
    location.reload()
    return
  }
  badge(c.waiting)
  if (c.html) {
    const state = byId('state')
    const before = state && state.dataset.state
    window.htmx.swap(body, c.html, { swapStyle: 'none' })
    const now = byId('state')
    if (now && now.dataset.state !== before) {
      const result = byId('result')
      say(body.dataset.sayTurned + ' ' + (result ? result.textContent : ''))
    }
    countDown()
  }
  if (c.new > 0) {
    const text = body.dataset.sayNew.replace('{n}', c.waiting)
    say(text)
    notify(text, c.first)
  }
}

let stream = null
let turn = null // of a list that nobody sees, to listen
let failures = 0 // in a row, of the stream to come about

// The page says by itself what it shows; the address that it came with may be old.
function whatIsShown () {
  const url = new URL(body.dataset.stream, location.href)
  const state = byId('state')
  if (state && url.searchParams.has('state')) url.searchParams.set('state', state.dataset.state)
  if (heard && url.searchParams.has('rev')) url.searchParams.set('rev', heard)
  return url.href
}

function listen () {
  if (stream) return
  stream = new EventSource(whatIsShown())
  stream.addEventListener('change', changed)
  stream.addEventListener('over', () => { deaf(); lost() })
  stream.addEventListener('open', () => { failures = 0; const p = byId('lost'); if (p) p.hidden = true })
  // A line that breaks is tried again by itself; a gate that is gone without a word answers no more.
  stream.addEventListener('error', () => { if (stream && (stream.readyState === EventSource.CLOSED || ++failures > 1)) lost() })
}

function deaf () {
  if (stream) stream.close()
  stream = null
}

if (body.dataset.stream && window.EventSource && window.htmx) {
  if (document.hidden) unseen(); else listen()
  window.addEventListener('pagehide', deaf)
  window.addEventListener('pageshow', (e) => { if (e.persisted) location.reload() })
  document.addEventListener('visibilitychange', () => { if (document.hidden) unseen(); else seen() })
}

// Browsers have six lines to one host. A request that nobody sees needs none, and
// of the lists that nobody sees one listens: for the badge and for notifications.
function unseen () {
  if (byId('waiting') && !navigator.locks) return
  deaf()
  if (!byId('waiting') || turn) return
  turn = new AbortController()
  const { signal } = turn
  navigator.locks.request('permesso-list', { signal }, () => new Promise((resolve) => {
    if (signal.aborted) return resolve()
    signal.addEventListener('abort', resolve)
    listen()
  })).catch(() => {}) // its turn had not come
}

function seen () {
  if (turn) turn.abort()
  turn = null
  listen()
}

// Notifications of the desktop, for who asked for them.
const wanted = () => { try { return localStorage.getItem('permesso-notify') === 'on' } catch { return false } }

function notify (text, first) {
  if (!wanted() || !('Notification' in window) || Notification.permission !== 'granted' || !document.hidden) return
  const n = new Notification('permesso', { body: text, tag: 'permesso' })
  n.onclick = () => { window.focus(); if (first) location.href = body.dataset.base + first }
}

const corner = byId('notify')
if (corner && 'Notification' in window) {
  corner.hidden = false
  const button = byId('notify-button')
  const show = () => { button.textContent = wanted() ? corner.dataset.off : corner.dataset.on }
  show()
  button.addEventListener('click', async () => {
    const on = !wanted()
    if (on && await Notification.requestPermission() !== 'granted') {
      byId('notify-text').textContent = corner.dataset.no
      return
    }
    localStorage.setItem('permesso-notify', on ? 'on' : 'off')
    show()
  })
}

// Keys. They do nothing while somebody types, holds a key down, or has just come.
const came = Date.now()
document.addEventListener('keydown', (e) => {
  if (body.dataset.keys !== 'on' || e.repeat || e.ctrlKey || e.altKey || e.metaKey || e.isComposing) return
  const at = e.target
  if (at.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(at.tagName)) return
  if (e.key === '?') {
    e.preventDefault()
    location.href = byId('to-help').href
    return
  }
  if (!['a', 'd', 'n'].includes(e.key) || Date.now() - came < 500) return
  const control = document.querySelector('[data-key="' + e.key + '"]')
  if (control && !control.disabled) {
    e.preventDefault()
    say(control.textContent)
    control.click()
  }
})

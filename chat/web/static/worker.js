// The service worker. It shows notifications and opens pages; it decides nothing and keeps nothing.
'use strict'

self.addEventListener('install', () => self.skipWaiting())
self.addEventListener('activate', (e) => e.waitUntil(self.clients.claim()))

// A browser that subscribed must see every message, so an unreadable one is shown as well.
function notice (data) {
  try {
    return data.json()
  } catch {
    return { title: 'permesso', body: '', tag: 'permesso', path: '', settled: false, silent: true }
  }
}

self.addEventListener('push', (e) => {
  const n = notice(e.data)
  e.waitUntil(self.registration.showNotification(String(n.title), {
    body: String(n.body),
    tag: String(n.tag),
    icon: '/static/icon-192.png',
    badge: '/static/icon-192.png',
    silent: n.silent === true,
    requireInteraction: n.settled !== true,
    data: { path: String(n.path) }
  }))
})

// target is the page of a notification. Only that of a request is opened, else the list.
function target (path) {
  return /^r\/[A-Za-z0-9._-]+\/[0-9a-f]+$/.test(path) ? '/' + path : '/'
}

self.addEventListener('notificationclick', (e) => {
  e.notification.close()
  e.waitUntil(self.clients.openWindow(target((e.notification.data || {}).path)))
})

// A browser may replace a subscription. Where the new one goes is in the address of an open page; without one, the next
// page that is opened sends it.
async function replaced (options) {
  const s = (await self.registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: options.applicationServerKey })).toJSON()
  for (const page of await self.clients.matchAll({ includeUncontrolled: true })) {
    const base = new URL(page.url).pathname.match(/^\/s\/[0-9a-f]+\//)
    if (base) return fetch(base[0] + 'push/subscribe', { method: 'POST', body: new URLSearchParams({ endpoint: s.endpoint, p256dh: s.keys.p256dh, auth: s.keys.auth }) })
  }
}

self.addEventListener('pushsubscriptionchange', (e) => {
  if (e.oldSubscription) e.waitUntil(replaced(e.oldSubscription.options))
})

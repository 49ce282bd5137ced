// Notifications without an open page, and links from notifications. The pages work without this script.
'use strict'

;(() => {
  const base = document.body.dataset.base
  const remember = (key) => ({ get: () => { try { return localStorage.getItem(key) } catch { return null } }, set: (v) => { try { localStorage.setItem(key, v) } catch {} } })
  const store = remember('permesso-base') // the path of the last session; it is of no use without the cookie
  const sent = remember('permesso-push') // that path, and the endpoint that was sent in it
  if (base) store.set(base)

  // The page that a notification links to leads into the last session.
  const session = store.get()
  if (document.querySelector('[data-open]') && /^\/s\/[0-9a-f]+\/$/.test(session || '')) {
    location.replace(session + (location.pathname === '/open' ? '' : location.pathname.slice(1)))
    return
  }

  if (!base || !('serviceWorker' in navigator) || !('PushManager' in window)) return
  async function post (path, fields) {
    const r = await fetch(base + path, { method: 'POST', body: new URLSearchParams(fields) })
    if (r.status !== 204) throw new Error(path + ': ' + r.status)
  }

  async function send (subscription) {
    const s = subscription.toJSON()
    await post('push/subscribe', { endpoint: s.endpoint, p256dh: s.keys.p256dh, auth: s.keys.auth })
    sent.set(base + s.endpoint)
  }

  // The browser may have replaced its subscription, and the gate may have lost it: it is sent once in a session.
  const refresh = (s) => s && sent.get() !== base + s.endpoint && send(s)
  navigator.serviceWorker.getRegistration('/').then((r) => r && r.pushManager.getSubscription()).then(refresh).catch(() => {})

  const section = document.getElementById('push')
  if (!section) return
  const button = document.getElementById('push-button')
  const say = (text) => { document.getElementById('push-text').textContent = text }
  const show = (on) => {
    button.textContent = on ? section.dataset.textOff : section.dataset.textOn
    button.dataset.state = on ? 'on' : 'off'
    section.hidden = false // not before: until then the button has no text
  }
  const ready = navigator.serviceWorker.register('/worker.js', { scope: '/' })

  async function turnOn (registration) {
    if (await Notification.requestPermission() !== 'granted') return say(section.dataset.textNo)
    await send(await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: section.dataset.key }))
    show(true)
  }

  async function turnOff (subscription) {
    await post('push/unsubscribe', { endpoint: subscription.endpoint })
    await subscription.unsubscribe()
    show(false)
  }

  ready.then((r) => r.pushManager.getSubscription()).then((s) => show(s !== null), () => show(false))
  button.addEventListener('click', async () => {
    say('')
    button.disabled = true
    try {
      const registration = await ready
      const s = await registration.pushManager.getSubscription()
      await (s ? turnOff(s) : turnOn(registration))
    } catch {
      say(section.dataset.textFailed)
    }
    button.disabled = false
  })
})()

// Notifications without an open page. The browser's own push service needs the internet, so the scenario subscribes at
// a local one and passes on what that decrypted.

import assert from 'node:assert/strict'

/** What the service has for a browser about a request, after n messages. Other scenarios have requests, too. */
async function messages(scene, name, n, request) {
  let all = []
  await scene.eventually(async () => {
    all = (await (await fetch(`${scene.plan.push}/messages/${name}`)).json()).filter((m) => m.includes(request.id))
    return all.length >= n
  })
  return all
}

/** Subscribes this browser at the local service, as the page would. */
async function subscribe(scene, page, name) {
  const key = await page.locator('#push').getAttribute('data-key')
  const fields = await (await fetch(`${scene.plan.push}/subscribe/${name}?key=${key}`)).json()
  const status = await page.evaluate(async (given) => {
    const r = await fetch(document.body.dataset.base + 'push/subscribe', { method: 'POST', body: new URLSearchParams(given) })
    return r.status
  }, fields)
  assert.equal(status, 204)
}

/**
 * Delivers a message to the service worker, as the browser does, and waits until the worker has shown it. Asking before
 * that which notifications there are can lose one: Chromium forgets those that it has stored and not yet shown.
 */
async function deliver(scene, page, registration, data) {
  const worker = page.context().serviceWorkers()[0]
  const before = await worker.evaluate(() => {
    if (self.shown === undefined) {
      self.shown = 0
      const show = self.registration.showNotification.bind(self.registration)
      self.registration.showNotification = async (...given) => {
        await show(...given)
        self.shown++
      }
    }
    return self.shown
  })
  const cdp = await page.context().newCDPSession(page)
  await cdp.send('ServiceWorker.enable')
  await cdp.send('ServiceWorker.deliverPushMessage', { origin: new URL(page.url()).origin, registrationId: registration, data })
  await cdp.detach()
  await scene.eventually(async () => await worker.evaluate(() => self.shown) > before)
}

/** The ID of the worker's registration. */
async function registrationOf(page) {
  const cdp = await page.context().newCDPSession(page)
  const found = new Promise((resolve) => cdp.on('ServiceWorker.workerRegistrationUpdated', ({ registrations }) => {
    const own = registrations.find((r) => !r.isDeleted)
    if (own) resolve(own.registrationId)
  }))
  await cdp.send('ServiceWorker.enable')
  const id = await found
  await cdp.detach()
  return id
}

const shown = (page) => page.evaluate(async () => {
  const all = await (await navigator.serviceWorker.getRegistration('/')).getNotifications()
  return all.map((n) => ({ title: n.title, body: n.body, tag: n.tag, silent: n.silent, path: n.data.path }))
})

/** The address that a click on the notification opens. A click itself needs a desktop. */
const clicked = (page, data) => page.context().serviceWorkers()[0].evaluate(async (given) => {
  const opened = []
  self.clients.openWindow = async (url) => { opened.push(url) }
  let closed = false
  const e = new Event('notificationclick')
  let done
  Object.assign(e, { notification: { data: given, close: () => { closed = true } }, waitUntil: (p) => { done = p } })
  self.dispatchEvent(e)
  await done
  return { opened, closed }
}, data)

export const scenarios = {
  'a notification without an open page leads to its request': async (scene) => {
    const page = await scene.login(scene.home, { permissions: ['notifications'] })
    await page.locator('#to-help').click()
    await page.locator('#push-button[data-state=off]').waitFor()
    await scene.accessible(page, 'help with notifications')
    // A browser that is slow to answer never shows the section with a button without text.
    await page.addInitScript(() => { navigator.serviceWorker.register = () => new Promise((resolve) => { window.answer = resolve }) })
    await page.reload()
    await page.waitForFunction(() => window.answer)
    assert.equal(await page.locator('#push').isVisible(), false)
    await page.evaluate(async () => window.answer(await navigator.serviceWorker.getRegistration('/')))
    await page.locator('#push-button[data-state=off]').waitFor()
    await page.evaluate(() => navigator.serviceWorker.ready)
    await subscribe(scene, page, 'phone')
    const request = await scene.home.agent('personal').submit('hello', { name: 'hostile: see http://evil.example' })
    const [first] = await messages(scene, 'phone', 1, request)
    const registration = await registrationOf(page)
    await deliver(scene, page, registration, first)
    const short = request.id.slice(0, 8)
    const tag = JSON.parse(first).tag
    const want = { title: '🔐 May I say hello?', body: `hello · personal · ${short}`, tag, silent: false, path: `r/personal/${request.id}` }
    assert.deepEqual(await shown(page), [want])

    const { opened, closed } = await clicked(page, { path: want.path })
    assert.deepEqual(opened, [`/r/personal/${request.id}`])
    assert.ok(closed)
    for (const path of ['', 'https://evil.example', '//evil.example', 'r/../x', 'grants/revoke', 'r/personal/1/decide']) {
      assert.deepEqual((await clicked(page, { path })).opened, ['/'], path)
    }
    assert.deepEqual((await clicked(page, null)).opened, ['/'])

    const tab = await scene.tab(page.context())
    await tab.goto(new URL(opened[0], page.url()).href)
    await tab.waitForURL(/\/s\/[0-9a-f]+\/r\/personal\//)
    await tab.locator('#code-3').click()
    const [, second] = await messages(scene, 'phone', 2, request)
    await deliver(scene, page, registration, second)
    assert.deepEqual(await shown(page), [{ ...want, body: `Settled: denied · ${short}`, silent: true }])
    await deliver(scene, page, registration, 'no JSON')
    const both = await shown(page)
    assert.equal(both.length, 2)
    assert.equal(both.find((n) => n.tag === 'permesso').title, 'permesso')
  },

  'a subscription that the browser replaced is known again': async (scene) => {
    const page = await scene.login(scene.home, { permissions: ['notifications'] })
    await page.locator('#to-help').click()
    await page.locator('#push-button[data-state=off]').waitFor()
    await page.evaluate(() => navigator.serviceWorker.ready)
    const key = await page.locator('#push').getAttribute('data-key')
    const replaced = async (name) => (await fetch(`${scene.plan.push}/subscribe/${name}?key=${key}`)).json()
    // The worker subscribes with the same key, and a page that is open says in which session.
    await page.context().serviceWorkers()[0].evaluate(async ({ endpoint, ...keys }) => {
      const manager = self.registration.pushManager
      Object.defineProperty(self.registration, 'pushManager', { value: manager })
      manager.subscribe = async (options) => {
        if (options.applicationServerKey !== 'the key' || !options.userVisibleOnly) throw new Error('other options')
        return { toJSON: () => ({ endpoint, keys }) }
      }
      const e = new Event('pushsubscriptionchange')
      let done
      Object.assign(e, { oldSubscription: { options: { applicationServerKey: 'the key' } }, waitUntil: (p) => { done = p } })
      self.dispatchEvent(e)
      await done
    }, await replaced('worker'))
    await messages(scene, 'worker', 1, await scene.home.agent('personal').submit('hello', { name: 'ann' }))

    // Without an open page, the next one that is opened sends it.
    await page.addInitScript(({ endpoint, ...keys }) => {
      PushManager.prototype.getSubscription = async () => ({ endpoint, toJSON: () => ({ endpoint, keys }) })
    }, await replaced('page'))
    const sent = page.waitForResponse((r) => r.url().endsWith('/push/subscribe') && r.status() === 204)
    await page.locator('nav a').first().click()
    await sent
    await messages(scene, 'page', 1, await scene.home.agent('personal').submit('hello', { name: 'ann' }))
    let again = 0
    page.on('request', (r) => { again += r.url().endsWith('/push/subscribe') })
    await page.reload()
    await page.locator('#to-help').click()
    await page.locator('#push-button[data-state=on]').waitFor()
    assert.equal(again, 0, 'once in a session')
  },

  'the pages can be installed': async (scene) => {
    const page = await scene.login(scene.home, {})
    const cdp = await page.context().newCDPSession(page)
    const manifest = await cdp.send('Page.getAppManifest')
    assert.deepEqual(manifest.errors, [])
    assert.match(manifest.url, /\/static\/app\.webmanifest$/)
    const { installabilityErrors } = await cdp.send('Page.getInstallabilityErrors')
    assert.deepEqual(installabilityErrors.filter((e) => e.errorId !== 'in-incognito'), [])
    await page.goto(new URL('/open', page.url()).href)
    await page.waitForURL(/\/s\/[0-9a-f]+\/$/)
  }
}

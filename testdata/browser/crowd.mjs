// An empty list, a very long one, and the end of the daemon.

import assert from 'node:assert/strict'

const MANY = 500

/** Replaces desktop notifications, and reports the list as hidden. */
function fakeDesktop() {
  globalThis.shown = []
  globalThis.Notification = class {
    static permission = 'granted'
    static requestPermission = async () => 'granted'
    constructor(title, options) { globalThis.shown.push(`${title}: ${options.body}`) }
  }
  Object.defineProperty(Document.prototype, 'hidden', { get: () => location.pathname.endsWith('/') })
}

/** Makes a page visible or hidden: a headless browser reports no page as hidden. */
function setVisible(visible) {
  Object.defineProperty(document, 'hidden', { configurable: true, get: () => !visible })
  document.dispatchEvent(new Event('visibilitychange'))
}

export const scenarios = {
  'no request, one, five hundred, and the end of the daemon': async (scene) => {
    const agent = scene.quiet.agent('crowd')
    const page = await scene.login(scene.quiet, {})
    await page.context().addInitScript(fakeDesktop)
    await page.getByRole('link', { name: 'Help' }).click()
    await page.locator('#notify-button').click()
    await page.getByRole('link', { name: 'Pending' }).click()
    assert.equal(await page.title(), 'Pending · permesso')
    const list = page.url()

    const first = await agent.submit('tidy', { folder: '/srv/first' })
    await page.waitForFunction(() => document.title.startsWith('(1) '))
    const shown = await page.evaluate(() => globalThis.shown)
    assert.equal(shown.length, 1)
    assert.doesNotMatch(shown[0], /srv/, 'a notification contains text of an agent')
    await agent.cancel(first)
    await page.waitForFunction(() => document.title.startsWith('Pending'))

    const began = performance.now()
    const requests = []
    for (let n = 0; n < MANY; n++) requests.push(await agent.submit('tidy', { folder: `/srv/${n}` }))
    await page.waitForFunction((n) => document.querySelectorAll('#waiting > .row').length === n, MANY, { timeout: 60_000 })
    scene.note(`${MANY} rows appeared in ${Math.round(performance.now() - began)} ms`)
    assert.equal(await page.title(), `(${MANY}) Pending · permesso`)
    const ids = await page.locator('#waiting > .row').evaluateAll((rows) => rows.map((row) => row.id))
    assert.equal(new Set(ids).size, MANY, 'a row exists twice')

    let mark = performance.now()
    const other = await scene.tab(page.context())
    await other.goto(list)
    assert.equal(await other.locator('#waiting > .row').count(), MANY)
    scene.note(`the page of ${MANY} opened in ${Math.round(performance.now() - mark)} ms`)
    await other.locator('#waiting > .row a').nth(MANY / 2).click()
    const id = await other.locator('#request').getAttribute('data-id')
    mark = performance.now()
    await other.locator('#code-1').click()
    await page.locator(`#q-crowd-${id}`).waitFor({ state: 'detached' })
    scene.note(`a decision in another tab removed the row in ${Math.round(performance.now() - mark)} ms`)
    assert.equal((await agent.wait(id)).outcome, 'approved')
    assert.equal(await page.locator('#waiting > .row').count(), MANY - 1)

    process.kill(scene.quiet.pid, 'SIGTERM')
    await page.locator('#lost').waitFor()
    scene.ignoreErrors(/ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE|CONNECTION_RESET)/)
  },

  // The page shows a lost connection, and hides the message after reconnecting.
  'no response of the daemon': async (scene) => {
    const page = await scene.login(scene.home, {})
    const stream = (url) => url.pathname.endsWith('/events')
    await page.route(stream, (route) => route.abort())
    await page.reload()
    await page.locator('#lost').waitFor()
    await page.unroute(stream)
    await page.locator('#lost').waitFor({ state: 'hidden' })
    scene.ignoreErrors(/ERR_FAILED/)
  },

  // With local_decisions = false the page has no buttons.
  'read-only': async (scene) => {
    const agent = scene.home.agent('shut')
    const page = await scene.login(scene.home)
    const request = await agent.submit('tidy', { folder: '/srv/shut' })
    await page.locator(`#q-shut-${request.id} a`).click()
    await page.locator('#state[data-state=waiting]').waitFor()
    assert.equal(await page.locator('#state button, #state input').count(), 0)
    await agent.cancel(request)
    await page.locator('#state[data-state="settled:cancelled"]').waitFor()
  },

  // A browser opens at most six connections to one server, and every open stream uses one.
  'ten tabs': async (scene) => {
    const page = await scene.login(scene.home, {})
    const request = await scene.home.agent('home').submit('tidy', { folder: '/srv/tabs' })
    const row = page.locator(`#q-home-${request.id} a`)
    await row.waitFor()
    const href = await row.evaluate((a) => a.href)
    const tabs = []
    for (let n = 0; n < 10; n++) {
      const tab = await scene.tab(page.context())
      await tab.goto(href)
      tabs.push(tab)
      if (n < 9) await tab.evaluate(setVisible, false) // the next tab covers it
    }
    await tabs.at(-1).locator('#code-3').click()
    await tabs.at(-1).locator('#decided').click()
    await tabs.at(-1).locator('#state[data-state="settled:denied"]').waitFor()
    await tabs[0].evaluate(setVisible, true)
    await tabs[0].locator('#state[data-state="settled:denied"]').waitFor()
  },

  // Of the hidden lists one has a stream. If it is closed, the next one opens one. The others update when visible.
  'ten lists': async (scene) => {
    const agent = scene.home.agent('home')
    const page = await scene.login(scene.home, {})
    const tabs = []
    for (let n = 0; n < 10; n++) {
      const tab = await scene.tab(page.context())
      await tab.goto(page.url())
      await tab.evaluate(setVisible, false)
      tabs.push(tab)
    }
    const request = await agent.submit('tidy', { folder: '/srv/lists' })
    const row = `#q-home-${request.id}`
    await tabs[0].locator(row).waitFor()
    assert.equal(await tabs[1].locator(row).count(), 0)
    await tabs[0].close()
    await tabs[1].locator(row).waitFor()
    await tabs[1].evaluate(setVisible, true)
    await tabs[2].locator(row).waitFor()
    await agent.cancel(request)
    for (const tab of tabs.slice(1, 3)) await tab.locator(row).waitFor({ state: 'detached' })
    const next = await agent.submit('tidy', { folder: '/srv/next' })
    await tabs[9].evaluate(setVisible, true)
    await tabs[9].locator(`#q-home-${next.id}`).waitFor()
    assert.equal(await tabs[9].locator(row).count(), 0)
    await agent.cancel(next)
  },
}

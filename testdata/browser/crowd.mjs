// A gate that has nothing to do, then more than anybody can read, and then ends.

import assert from 'node:assert/strict'

const MANY = 500

/** Stands in for the desktop, which has no notifications here, and says that the page is in the background. */
function fakeDesktop() {
  globalThis.shown = []
  globalThis.Notification = class {
    static permission = 'granted'
    static requestPermission = async () => 'granted'
    constructor(title, options) { globalThis.shown.push(`${title}: ${options.body}`) }
  }
  Object.defineProperty(Document.prototype, 'hidden', { get: () => location.pathname.endsWith('/') })
}

/** Tells a page that it is looked at, or no longer: a browser without windows says so of none. */
function seen(now) {
  Object.defineProperty(document, 'hidden', { configurable: true, get: () => !now })
  document.dispatchEvent(new Event('visibilitychange'))
}

export const scenarios = {
  'nothing, one, five hundred, and the end of the gate': async (scene) => {
    const agent = scene.quiet.agent('crowd')
    const page = await scene.enter(scene.quiet, {})
    await page.context().addInitScript(fakeDesktop)
    await page.getByRole('link', { name: 'Help' }).click()
    await page.locator('#notify-button').click()
    await page.getByRole('link', { name: 'Waiting' }).click()
    assert.equal(await page.title(), 'Waiting · permesso')
    const list = page.url()

    const first = await agent.submit('tidy', { folder: '/srv/first' })
    await page.waitForFunction(() => document.title.startsWith('(1) '))
    const shown = await page.evaluate(() => globalThis.shown)
    assert.equal(shown.length, 1)
    assert.doesNotMatch(shown[0], /srv/, 'the desktop reads what an agent wrote')
    await agent.cancel(first)
    await page.waitForFunction(() => document.title.startsWith('Waiting'))

    const began = performance.now()
    const asked = []
    for (let n = 0; n < MANY; n++) asked.push(await agent.submit('tidy', { folder: `/srv/${n}` }))
    await page.waitForFunction((n) => document.querySelectorAll('#waiting > .row').length === n, MANY, { timeout: 60_000 })
    scene.note(`${MANY} rows came by themselves in ${Math.round(performance.now() - began)} ms`)
    assert.equal(await page.title(), `(${MANY}) Waiting · permesso`)
    const ids = await page.locator('#waiting > .row').evaluateAll((rows) => rows.map((row) => row.id))
    assert.equal(new Set(ids).size, MANY, 'a row is there twice')

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
    scene.note(`a click there took a row from here in ${Math.round(performance.now() - mark)} ms`)
    assert.equal((await agent.wait(id)).outcome, 'approved')
    assert.equal(await page.locator('#waiting > .row').count(), MANY - 1)

    process.kill(scene.quiet.pid, 'SIGTERM')
    await page.locator('#lost').waitFor()
    scene.expect(/ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE|CONNECTION_RESET)/)
  },

  // Whoever dies without a word is missed, and found again.
  'a gate that does not answer': async (scene) => {
    const page = await scene.enter(scene.home, {})
    const stream = (url) => url.pathname.endsWith('/events')
    await page.route(stream, (route) => route.abort())
    await page.reload()
    await page.locator('#lost').waitFor()
    await page.unroute(stream)
    await page.locator('#lost').waitFor({ state: 'hidden' })
    scene.expect(/ERR_FAILED/)
  },

  // Who decides elsewhere alone looks here, and finds no button.
  'only to look at': async (scene) => {
    const agent = scene.home.agent('shut')
    const page = await scene.enter(scene.home)
    const asked = await agent.submit('tidy', { folder: '/srv/shut' })
    await page.locator(`#q-shut-${asked.id} a`).click()
    await page.locator('#state[data-state=waiting]').waitFor()
    assert.equal(await page.locator('#state button, #state input').count(), 0)
    await agent.cancel(asked)
    await page.locator('#state[data-state="settled:cancelled"]').waitFor()
  },

  // A browser opens six lines to one server, and every page that listens holds one.
  'ten tabs': async (scene) => {
    const page = await scene.enter(scene.home, {})
    const asked = await scene.home.agent('home').submit('tidy', { folder: '/srv/tabs' })
    const row = page.locator(`#q-home-${asked.id} a`)
    await row.waitFor()
    const href = await row.evaluate((a) => a.href)
    const tabs = []
    for (let n = 0; n < 10; n++) {
      const tab = await scene.tab(page.context())
      await tab.goto(href)
      tabs.push(tab)
      if (n < 9) await tab.evaluate(seen, false) // the next one lies before it
    }
    await tabs.at(-1).locator('#code-3').click()
    await tabs.at(-1).locator('#state[data-state="settled:denied"]').waitFor()
    await tabs[0].evaluate(seen, true)
    await tabs[0].locator('#state[data-state="settled:denied"]').waitFor()
  },

  // Of the lists that nobody sees one listens, then the next; what the others missed they learn when they are seen.
  'ten lists': async (scene) => {
    const agent = scene.home.agent('home')
    const page = await scene.enter(scene.home, {})
    const tabs = []
    for (let n = 0; n < 10; n++) {
      const tab = await scene.tab(page.context())
      await tab.goto(page.url())
      await tab.evaluate(seen, false)
      tabs.push(tab)
    }
    const asked = await agent.submit('tidy', { folder: '/srv/lists' })
    const row = `#q-home-${asked.id}`
    await tabs[0].locator(row).waitFor()
    assert.equal(await tabs[1].locator(row).count(), 0)
    await tabs[0].close()
    await tabs[1].locator(row).waitFor()
    await tabs[1].evaluate(seen, true)
    await tabs[2].locator(row).waitFor()
    await agent.cancel(asked)
    for (const tab of tabs.slice(1, 3)) await tab.locator(row).waitFor({ state: 'detached' })
    const next = await agent.submit('tidy', { folder: '/srv/next' })
    await tabs[9].evaluate(seen, true)
    await tabs[9].locator(`#q-home-${next.id}`).waitFor()
    assert.equal(await tabs[9].locator(row).count(), 0)
    await agent.cancel(next)
  },
}

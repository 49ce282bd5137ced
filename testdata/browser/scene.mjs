// What a scenario has: people at browsers, and what goes wrong in these.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

export const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 }

/** What axe looks at: all that WCAG 2.2 asks for at A and AA and a program can see. */
const BARRIERS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']

export class Scene {
  constructor({ name, browser, houses, axe, plan, patience }) {
    Object.assign(this, { name, browser, axe, plan, patience, ...houses })
    this.contexts = [] // of this scenario alone
    this.pages = []
    this.wrong = [] // what no page of ours does
    this.notes = []
  }

  /** A browser of its own, which has not entered yet. */
  async visitor(options = {}) {
    const context = await this.browser.newContext({ locale: 'en-GB', timezoneId: 'UTC', ...options })
    context.setDefaultTimeout(this.patience)
    this.contexts.push(context)
    return this.tab(context)
  }

  async tab(context) {
    const page = await context.newPage()
    this.pages.push(page)
    this.watch(page)
    return page
  }

  watch(page) {
    page.on('console', (said) => {
      if (said.type() === 'error' || said.type() === 'warning') this.wrong.push(`console: ${said.text()}`)
    })
    page.on('pageerror', (why) => this.wrong.push(`script: ${why}`))
    page.on('dialog', (dialog) => {
      this.wrong.push(`dialog: ${dialog.message()}`)
      dialog.dismiss().catch(() => {})
    })
    page.on('requestfailed', (asked) => {
      if (asked.failure()?.errorText.includes('BLOCKED')) this.wrong.push(`blocked: ${asked.url()}`)
    })
  }

  /**
   * Somebody who stands before the list: with options in a browser of their own, otherwise in one that
   * scenarios share, since each costs a second.
   */
  async enter(house, options) {
    if (options) return this.open(house, await this.visitor(options), options.javaScriptEnabled !== false)
    house.shared ??= this.browser.newContext({ locale: 'en-GB', timezoneId: 'UTC' }).then(async (context) => {
      context.setDefaultTimeout(this.patience)
      const page = await this.open(house, await this.tab(context), true)
      return { context, list: page.url() }
    })
    const { context, list } = await house.shared
    const page = await this.tab(context)
    await page.goto(list)
    return page
  }

  async open(house, page, script) {
    await page.goto(await house.link())
    if (!script) await page.locator('#enter').click()
    await page.waitForURL(/\/s\/[0-9a-f]+\/$/)
    return page
  }

  note(text) {
    this.notes.push(text)
  }

  /** Says what a browser may complain of, for once. */
  expect(pattern) {
    this.wrong = this.wrong.filter((text) => !pattern.test(text))
  }

  /** Looks again until something is so that tells nobody when it becomes so. */
  async eventually(so) {
    for (const end = Date.now() + this.patience; Date.now() < end;) {
      if (await so()) return
      await sleep(50)
    }
    assert.fail('waited in vain')
  }

  /**
   * Taps until that shows what comes next. Where the machine is busy a touch may last so long that it is another
   * gesture, and then nothing happens: a thumb taps again.
   */
  async tap(what, next) {
    await this.eventually(async () => {
      await what.tap({ timeout: 3000 }).catch(() => {}) // a late answer to the touch before may have taken it away
      return next.waitFor({ timeout: 3000 }).then(() => true, () => false)
    })
  }

  /** Finds no barrier on the page as it stands. */
  accessible(page, where) {
    return this.examine(page, where, { runOnly: BARRIERS, rules: { 'target-size': { enabled: true } } })
  }

  /** Finds every text readable in the colours that the page has now: nothing else depends on these. */
  legible(page, where) {
    return this.examine(page, where, { runOnly: { type: 'rule', values: ['color-contrast', 'link-in-text-block'] } })
  }

  async examine(page, where, options) {
    await page.waitForLoadState()
    if (!await page.evaluate(() => 'axe' in globalThis)) await page.evaluate(this.axe)
    const found = await page.evaluate((what) => globalThis.axe.run({ ...what, resultTypes: ['violations'] }), options)
    const list = found.violations.map((v) => `${v.id}: ${v.help}\n  ${v.nodes.map((n) => `${n.html}\n  ${n.failureSummary}`).join('\n  ')}`)
    assert.equal(list.length, 0, `${where}: ${list.join('\n')}`)
    assert.ok(found.passes.length > 0, `${where}: axe has looked at nothing`)
  }

  /** Nothing of the page is beyond its right edge. */
  async fits(page, where) {
    await page.waitForLoadState() // with its style sheet
    const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth])
    assert.ok(wide <= window, `${where}: ${wide} px wide in a window of ${window}`)
  }

  judge() {
    assert.deepEqual(this.wrong, [])
  }

  /** Takes pictures of what is open, and says where they are. */
  async evidence() {
    const lines = [...this.wrong]
    let n = 0
    for (const page of this.pages) {
      const file = join(this.plan.shots, `${this.name.replace(/\W+/g, '-')}-${++n}.png`)
      await page.screenshot({ path: file, timeout: 5000 }).then(() => lines.push(`${page.url()} looked like ${file}`), () => {})
    }
    return lines.join('\n')
  }

  async end() {
    await Promise.all([...this.pages, ...this.contexts].map((one) => one.close().catch(() => {})))
  }
}

// The context of a scenario: its browsers, and the errors in them.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

export const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 }

/** The axe rules: all of WCAG 2.2 A and AA that can be checked automatically. */
const WCAG = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']

export class Scene {
  constructor({ name, browser, gates, axe, plan, timeout }) {
    Object.assign(this, { name, browser, axe, plan, timeout, ...gates })
    this.contexts = [] // used by this scenario only
    this.pages = []
    this.errors = [] // what our pages must not cause
    this.notes = []
  }

  /** A page in a new browser context, without a session. */
  async newContext(options = {}) {
    const context = await this.browser.newContext({ locale: 'en-GB', timezoneId: 'UTC', ...options })
    context.setDefaultTimeout(this.timeout)
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
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') this.errors.push(`console: ${message.text()}`)
    })
    page.on('pageerror', (error) => this.errors.push(`script: ${error}`))
    page.on('dialog', (dialog) => {
      this.errors.push(`dialog: ${dialog.message()}`)
      dialog.dismiss().catch(() => {})
    })
    page.on('requestfailed', (request) => {
      if (request.failure()?.errorText.includes('BLOCKED')) this.errors.push(`blocked: ${request.url()}`)
    })
  }

  /**
   * A logged-in user's page with the list. With options, in a new browser context; otherwise in one that
   * scenarios share, because a new one takes a second.
   */
  async login(gate, options) {
    if (options) return this.open(gate, await this.newContext(options), options.javaScriptEnabled !== false)
    gate.shared ??= this.browser.newContext({ locale: 'en-GB', timezoneId: 'UTC' }).then(async (context) => {
      context.setDefaultTimeout(this.timeout)
      const page = await this.open(gate, await this.tab(context), true)
      return { context, list: page.url() }
    })
    const { context, list } = await gate.shared
    const page = await this.tab(context)
    await page.goto(list)
    return page
  }

  async open(gate, page, script) {
    await page.goto(await gate.link())
    if (!script) await page.locator('#enter').click()
    await page.waitForURL(/\/s\/[0-9a-f]+\/$/)
    return page
  }

  note(text) {
    this.notes.push(text)
  }

  /** Drops the errors that match so far. */
  ignoreErrors(pattern) {
    this.errors = this.errors.filter((text) => !pattern.test(text))
  }

  /** Polls until a condition holds. */
  async eventually(holds) {
    for (const end = Date.now() + this.timeout; Date.now() < end;) {
      if (await holds()) return
      await sleep(50)
    }
    assert.fail('condition not met within the timeout')
  }

  /**
   * Taps until the next element appears. On a busy machine a tap may last so long that the browser takes it for
   * another gesture and ignores it.
   */
  async tap(target, next) {
    await this.eventually(async () => {
      await target.tap({ timeout: 3000 }).catch(() => {}) // the previous tap may have removed the target
      return next.waitFor({ timeout: 3000 }).then(() => true, () => false)
    })
  }

  /** Checks the accessibility of the page in its current state. */
  accessible(page, where) {
    return this.examine(page, where, { runOnly: WCAG, rules: { 'target-size': { enabled: true } } })
  }

  /** Checks only what depends on the colors of the page. */
  legible(page, where) {
    return this.examine(page, where, { runOnly: { type: 'rule', values: ['color-contrast', 'link-in-text-block'] } })
  }

  async examine(page, where, options) {
    await page.waitForLoadState()
    if (!await page.evaluate(() => 'axe' in globalThis)) await page.evaluate(this.axe)
    const found = await page.evaluate((given) => globalThis.axe.run({ ...given, resultTypes: ['violations'] }), options)
    const list = found.violations.map((v) => `${v.id}: ${v.help}\n  ${v.nodes.map((n) => `${n.html}\n  ${n.failureSummary}`).join('\n  ')}`)
    assert.equal(list.length, 0, `${where}: ${list.join('\n')}`)
    assert.ok(found.passes.length > 0, `${where}: axe checked nothing`)
  }

  /** Checks that the page does not scroll sideways. */
  async fits(page, where) {
    await page.waitForLoadState() // with its style sheet
    const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth])
    assert.ok(wide <= window, `${where}: ${wide} px wide in a window of ${window}`)
  }

  checkErrors() {
    assert.deepEqual(this.errors, [])
  }

  /** Takes screenshots of the open pages; returns their paths and the errors. */
  async evidence() {
    const lines = [...this.errors]
    let n = 0
    for (const page of this.pages) {
      const file = join(this.plan.shots, `${this.name.replace(/\W+/g, '-')}-${++n}.png`)
      await page.screenshot({ path: file, timeout: 5000 }).then(() => lines.push(`screenshot of ${page.url()}: ${file}`), () => {})
    }
    return lines.join('\n')
  }

  async end() {
    await Promise.all([...this.pages, ...this.contexts].map((one) => one.close().catch(() => {})))
  }
}

// Whatever an agent writes stays text.

import assert from 'node:assert/strict'
import { answer } from './decide.mjs'

const TOGETHER = 40 // strings in one request's arguments

/** What a page may be made of. */
const ELEMENTS = `html head meta title link script noscript body a header nav ul ol li form span button p main h1 h2 h3 article section
  time pre code blockquote bdi details summary input label textarea select option div dl dt dd table thead tbody tr th td strong kbd`.split(/\s+/)

/** The beginning of a text, cut between two characters. */
const cut = (text, n) => [...text].slice(0, n).join('')

/** Elements, attributes and addresses of a page that are none of ours. */
const foreign = (page) => page.evaluate((ours) => {
  const bad = []
  for (const e of document.querySelectorAll('*')) {
    if (!ours.includes(e.localName)) bad.push(e.outerHTML.slice(0, 200))
    for (const a of e.attributes) {
      if (a.name.startsWith('on') || a.name === 'style') bad.push(`${e.localName} ${a.name}=${a.value}`)
      if (['href', 'src', 'action'].includes(a.name) && new URL(a.value, location.href).origin !== location.origin) bad.push(`${e.localName} ${a.name}=${a.value}`)
    }
  }
  if (document.scripts.length !== 2) bad.push(`${document.scripts.length} scripts`)
  if (document.styleSheets.length !== 1) bad.push(`${document.styleSheets.length} style sheets`)
  if (document.querySelectorAll('main').length !== 1) bad.push('another page in the page')
  return bad
}, ELEMENTS)

export const scenarios = {
  'markup in every field': async (scene) => {
    const agent = scene.home.agent('home')
    const strings = scene.plan.strings.filter((text) => text.includes('<')) // markup; the server's tests have all of them
    assert.ok(strings.length > 10)
    const asked = []
    for (let n = 0; n < strings.length; n += TOGETHER) {
      const some = strings.slice(n, n + TOGETHER)
      const prose = cut(some.join(' '), 600)
      const args = { folder: some[0], ...Object.fromEntries(some.map((text, i) => [cut(`${i} ${text}`, 60), text])) }
      asked.push(await agent.submit('tidy', args, { title: cut(prose, 150), preview: prose, rationale: prose, sessionId: `s${n}` }))
    }
    const markup = strings.map((text) => cut(text, 80)).slice(0, 8)
    asked.push(await agent.submit('', {}, { type: 'question', title: markup[0], options: markup }))
    asked.push(await agent.submit('', { text: markup[1] }, { actionType: 'custom:x' }))
    const page = await scene.enter(scene.home)
    const base = page.url()
    const look = async (where) => {
      await page.waitForLoadState()
      assert.deepEqual(await foreign(page), [], where)
    }
    for (const { id } of asked) {
      const row = page.locator(`#q-home-${id}`)
      const settled = agent.wait(id).then((told) => assert.fail(`${told.outcome}: ${told.error}`))
      await Promise.race([row.waitFor(), settled])
      settled.catch(() => {})
    }
    await look('the list')
    for (const { id } of asked) {
      await page.goto(new URL(`r/home/${id}`, base).href)
      await page.locator('#state[data-state=waiting]').waitFor()
      await page.evaluate(() => document.querySelectorAll('details').forEach((d) => { d.open = true }))
      await look(id)
    }
    for (const { id } of asked.slice(-2)) {
      await page.goto(new URL(`r/home/${id}`, base).href)
      await page.locator('#ask-text').fill(markup.join('\n'))
      await page.locator('#code-ask').click() // what a person writes comes back on the page, too
      await page.locator('#note').waitFor()
      await page.locator('#state[data-state="settled:request_more"]').waitFor()
      await look(`${id}, asked back`)
      assert.equal((await answer(scene, { id })).outcome, 'request_more')
    }
    for (const { id } of asked) {
      assert.equal(scene.home.ran(id), 0)
      await agent.cancel(id)
    }
    for (const name of ['History', 'Audit log']) {
      await page.getByRole('link', { name }).click()
      await page.locator('#q').fill(markup[0])
      await page.locator('#search button').click()
      await page.waitForURL(/q=/)
      await look(name)
    }
    scene.note(`${strings.length} strings in ${asked.length} requests`)
  },
}

// Text of an agent never becomes markup.

import assert from 'node:assert/strict'
import { decided, outcomeOf } from './decide.mjs'

const PER_REQUEST = 40 // strings in one request's arguments

/** The elements that our pages use. */
const ELEMENTS = `html head meta title link script noscript body a header nav ul ol li form span button p main h1 h2 h3 article section
  time pre code blockquote bdi details summary input label textarea select option div dl dt dd table thead tbody tr th td strong kbd`.split(/\s+/)

/** The first n characters of a text. */
const cut = (text, n) => [...text].slice(0, n).join('')

/** Elements, attributes and URLs of a page that are not ours. */
const foreign = (page) => page.evaluate((ours) => {
  const bad = []
  for (const e of document.querySelectorAll('*')) {
    if (!ours.includes(e.localName)) bad.push(e.outerHTML.slice(0, 200))
    for (const a of e.attributes) {
      if (a.name.startsWith('on') || a.name === 'style') bad.push(`${e.localName} ${a.name}=${a.value}`)
      if (['href', 'src', 'action'].includes(a.name) && new URL(a.value, location.href).origin !== location.origin) bad.push(`${e.localName} ${a.name}=${a.value}`)
    }
  }
  const own = ['/static/htmx.min.js', '/static/app.js', '/static/push.js']
  for (const e of document.scripts) if (!own.includes(e.getAttribute('src')) || e.textContent) bad.push(e.outerHTML)
  if (document.styleSheets.length !== 1) bad.push(`${document.styleSheets.length} style sheets`)
  if (document.querySelectorAll('main').length !== 1) bad.push('more than one main element')
  return bad
}, ELEMENTS)

export const scenarios = {
  'markup in every field': async (scene) => {
    const agent = scene.home.agent('home')
    const strings = scene.plan.strings.filter((text) => text.includes('<')) // the tests in chat/web use all strings
    assert.ok(strings.length > 10)
    const requests = []
    for (let n = 0; n < strings.length; n += PER_REQUEST) {
      const some = strings.slice(n, n + PER_REQUEST)
      const prose = cut(some.join(' '), 600)
      const more = Object.fromEntries(some.map((text, i) => [cut(`${i} ${text}`, 60), text])) // names are hostile, too
      const args = { folder: some[0], more }
      requests.push(await agent.submit('tidy', args, { title: cut(prose, 150), preview: prose, rationale: prose, sessionId: `s${n}` }))
    }
    const markup = strings.map((text) => cut(text, 80)).slice(0, 8)
    requests.push(await agent.submit('', {}, { type: 'question', title: markup[0], options: markup }))
    requests.push(await agent.submit('', { text: markup[1] }, { actionType: 'custom:x' }))
    const page = await scene.login(scene.home)
    const base = page.url()
    const check = async (where) => {
      await page.waitForLoadState()
      assert.deepEqual(await foreign(page), [], where)
    }
    for (const { id } of requests) {
      const row = page.locator(`#q-home-${id}`)
      const settled = agent.wait(id).then((result) => assert.fail(`${result.outcome}: ${result.error}`))
      await Promise.race([row.waitFor(), settled])
      settled.catch(() => {})
    }
    await check('the list')
    for (const { id } of requests) {
      await page.goto(new URL(`r/home/${id}`, base).href)
      await page.locator('#state[data-state=waiting]').waitFor()
      await page.evaluate(() => document.querySelectorAll('details').forEach((d) => { d.open = true }))
      await check(id)
    }
    for (const { id } of requests.slice(-2)) {
      await page.goto(new URL(`r/home/${id}`, base).href)
      await page.locator('#ask-text').fill(markup.join('\n'))
      await page.locator('#code-ask').click() // the page also shows text that the user wrote
      await page.locator('#sure').waitFor()
      await check(`${id}, with a question to confirm`)
      await page.locator('#sure').click()
      await page.locator('#note').waitFor()
      await check(`the page after ${id}, with a question to the agent`)
      await decided(page, 'settled:request_more')
      await check(`${id}, with a question to the agent`)
      assert.equal((await outcomeOf(scene, { id })).outcome, 'request_more')
    }
    for (const { id } of requests) {
      assert.equal(scene.home.runs(id), 0)
      await agent.cancel(id)
    }
    for (const name of ['History', 'Audit log']) {
      await page.getByRole('link', { name }).click()
      await page.locator('#q').fill(markup[0])
      await page.locator('#search button').click()
      await page.waitForURL(/q=/)
      await check(name)
    }
    scene.note(`${strings.length} strings in ${requests.length} requests`)
  },
}

// A tour of every page with something on it: nothing on them is in anybody's way, by daylight and at
// night, on a desk and on a phone. The pictures of the README are taken on it.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { PHONE } from './scene.mjs'

const DESK = { viewport: { width: 1120, height: 900 } }

const LOOKS = { desk: DESK, phone: PHONE }

/** What has happened in the house by the time somebody looks, and what waits. */
async function furnish(house) {
  const personal = house.agent('personal')
  const research = house.agent('research')
  const decide = async (agent, tool, args, more, ...answer) => {
    const asked = await agent.submit(tool, args, more)
    for (let tries = 0; ; tries++) {
      try {
        await house.operator(answer[0], asked.id, ...answer.slice(1))
        break
      } catch (why) {
        if (tries > 100) throw why
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    }
    return agent.wait(asked)
  }
  await personal.request('read_calendar', { from: 'Monday', until: 'Friday' })
  const [done] = await Promise.all([
    decide(personal, 'x_post', { text: 'The garden is open on Sunday.' }, { sessionId: 'garden' }, 'approve'),
    decide(personal, 'write_file', { path: '/home/ann/invoices/2026-11.csv', content: 'date,amount\n2026-11-02,41.50\n' }, {}, 'approve'),
    decide(personal, 'send_mail', { to: 'everyone@example.org', subject: 'Sale', body: 'Everything must go.' }, {}, 'deny', 'not to everyone'),
    decide(research, 'fetch', { url: 'https://example.org/papers/17' }, { sessionId: 'papers' }, 'approve'),
  ])
  await research.request('send_mail', { to: 'bob@example.org', subject: 'Draft', body: '…' })

  const waiting = { done: done.id }
  waiting.mail = await personal.submit('send_mail', {
    to: 'bob@example.org', cc: 'ann@example.org', subject: 'Lunch on Thursday?', body: 'Hi Bob,\n\nshall we meet at noon, at the usual place?\n\nAnn',
  }, { title: 'Answer Bob', preview: 'A short mail', rationale: 'Bob asked on Monday when you would have time, and Thursday noon is free.' })
  waiting.file = await personal.submit('write_file', { path: '/home/ann/notes/garden.md', content: '# Garden\n\n- plant garlic\n- order mulch\n' },
    { rationale: 'You asked for a list.' })
  waiting.post = await personal.submit('x_post', { text: 'Meeting moved to 5 pm.' }, { sessionId: 'garden' })
  waiting.fetch = await research.submit('fetch', { url: 'https://example.org/papers/18' }, { sessionId: 'papers' })
  waiting.question = await research.submit('', {}, {
    type: 'question', title: 'Which edition shall I cite?', options: ['the first, 1974', 'the second, 1991'],
  })
  return waiting
}

const SHOWN = ['list', 'request', 'confirm', 'history', 'workspaces']

/** A picture for the README, where pictures are wanted. */
async function picture(scene, page, name, look) {
  const { pictures } = scene.plan
  if (pictures && SHOWN.includes(name)) await page.screenshot({ path: join(pictures, `${name}-${look}.png`), scale: 'css' })
}

export const scenarios = Object.fromEntries(Object.entries(LOOKS).map(([look, options]) => [`the tour: ${look}`, async (scene) => {
  const house = scene.tour
  const waiting = await (house.furnished ??= furnish(house))
  const page = await scene.enter(house, options)
  const base = page.url()
  const examine = async (name) => {
    await scene.fits(page, `${name}, ${look}`)
    await scene.accessible(page, `${name}, ${look}`)
    await picture(scene, page, name, look === 'desk' ? 'light' : look)
    await page.emulateMedia({ colorScheme: 'dark' })
    await scene.legible(page, `${name}, ${look}, at night`)
    if (look === 'desk') await picture(scene, page, name, 'dark')
    await page.emulateMedia({ colorScheme: 'light' })
  }
  const visit = async (name, path) => {
    await page.goto(new URL(path, base).href)
    await page.locator('main h1').waitFor()
    await examine(name)
  }
  await page.locator(`#q-research-${waiting.question.id}`).waitFor()
  await visit('list', '')
  await visit('request', `r/personal/${waiting.mail.id}`)
  await page.locator('#code-1').click()
  await page.locator('#careful').waitFor()
  await examine('confirm')
  await visit('question', `r/research/${waiting.question.id}`)
  await visit('settled', `r/personal/${waiting.done}`)
  const links = await page.locator('header nav a').evaluateAll((all) => all.map((a) => a.href))
  assert.equal(links.length, 7)
  for (const href of links.slice(1)) await visit(href.split('/').pop(), href)
  await page.locator('#leave').click()
  await page.locator('h1').waitFor()
  await examine('no session')
}]))

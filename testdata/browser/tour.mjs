// A tour of every page with something on it: nothing on them is in anybody's way, by daylight and at
// night, on a desk and on a phone. The pictures of the README are taken on it.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { PHONE } from './scene.mjs'

const DESK = { viewport: { width: 1120, height: 900 } }

/** The four ways to look. */
const LOOKS = {
  light: { ...DESK, colorScheme: 'light' },
  dark: { ...DESK, colorScheme: 'dark' },
  phone: { ...PHONE, colorScheme: 'light' },
  'phone-dark': { ...PHONE, colorScheme: 'dark' },
}

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
  await Promise.all([
    decide(personal, 'x_post', { text: 'The garden is open on Sunday.' }, { sessionId: 'garden' }, 'approve'),
    decide(personal, 'write_file', { path: '/home/ann/invoices/2026-11.csv', content: 'date,amount\n2026-11-02,41.50\n' }, {}, 'approve'),
    decide(personal, 'send_mail', { to: 'everyone@example.org', subject: 'Sale', body: 'Everything must go.' }, {}, 'deny', 'not to everyone'),
    decide(research, 'fetch', { url: 'https://example.org/papers/17' }, { sessionId: 'papers' }, 'approve'),
  ])
  await research.request('send_mail', { to: 'bob@example.org', subject: 'Draft', body: '…' })

  const waiting = {}
  waiting.mail = await personal.submit('send_mail', {
    to: 'bob@example.org', subject: 'Lunch on Thursday?', body: 'Hi Bob,\n\nshall we meet at noon, at the usual place?\n\nAnn',
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

export const scenarios = Object.fromEntries(Object.entries(LOOKS).map(([look, options]) => [`the tour: ${look}`, async (scene) => {
  const house = scene.tour
  const waiting = await (house.furnished ??= furnish(house))
  const page = await scene.enter(house, options)
  const base = page.url()
  const visit = async (name, path, ready) => {
    await page.goto(new URL(path, base).href)
    await (ready ?? page.locator('main h1')).first().waitFor()
    await scene.accessible(page, `${name}, ${look}`)
    await scene.fits(page, `${name}, ${look}`)
    const { pictures } = scene.plan
    if (pictures && look !== 'phone-dark') await page.screenshot({ path: join(pictures, `${name}-${look}.png`), scale: 'css' })
  }
  await page.locator(`#q-research-${waiting.question.id}`).waitFor()
  await visit('list', '')
  await visit('request', `r/personal/${waiting.mail.id}`)
  await visit('question', `r/research/${waiting.question.id}`)
  await visit('help', 'help')
  const more = await page.locator('header nav a').evaluateAll((list) => list.map((a) => a.href))
  for (const href of more) {
    const name = new URL(href).pathname.replace(/^\/s\/[0-9a-f]+\//, '')
    if (name && name !== 'help') await visit(name, name)
  }
  await page.goto(new URL(`r/personal/${waiting.mail.id}`, base).href)
  await page.locator('#code-1').click()
  await page.locator('#careful').waitFor()
  await scene.accessible(page, `confirm, ${look}`)
  await scene.fits(page, `confirm, ${look}`)
  if (scene.plan.pictures && look !== 'phone-dark') await page.screenshot({ path: join(scene.plan.pictures, `confirm-${look}.png`), scale: 'css' })
  assert.equal(await page.locator('#sure').count(), 1)
}]))

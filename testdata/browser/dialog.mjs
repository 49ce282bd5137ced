// People ask back, and the agent asks again.

import assert from 'node:assert/strict'
import { ask, answer, state } from './decide.mjs'

export const scenarios = {
  // What the facts answer is answered at once, and the request goes on waiting.
  'asked back, answered from facts': async (scene) => {
    const page = await scene.enter(scene.home)
    const asked = await ask(scene, page, 'mail', { to: 'bob@example.org', subject: 'Lunch', body: 'At noon?' })
    await page.locator('#ask-text').fill('who will be emailed?')
    await page.locator('#code-ask').click()
    await page.locator('#note').waitFor()
    await page.waitForLoadState()
    assert.match(await page.locator('#note').innerText(), /bob@example\.org/)
    await state(page, 'waiting')
    await page.locator('#ask-text').fill('why am I asked?')
    await page.locator('#code-ask').click()
    await page.locator('#note', { hasText: 'mail:send' }).waitFor()
    await state(page, 'waiting')
    await page.locator('#code-3').click()
    assert.equal((await answer(scene, asked)).outcome, 'denied')
  },

  // What they do not answer goes to the agent; what it brings next says what is different.
  'asked back, and asked again': async (scene) => {
    const page = await scene.enter(scene.home)
    const agent = scene.home.agent('home')
    const first = await ask(scene, page, 'mail', { to: 'bob@example.org', subject: 'Lunch', body: 'At noon?' })
    await page.locator('#ask-text').fill('does the body mention the budget?')
    await page.locator('#code-ask').click()
    await state(page, 'settled:request_more')
    const told = await answer(scene, first)
    assert.equal(told.outcome, 'request_more')
    assert.match(told.feedback, /does the body mention the budget\?/)
    assert.equal(told.raw.required_response, 'answer_from_facts_or_resubmit')
    const again = await agent.submit('mail', { to: 'ann@example.org', subject: 'Lunch', body: 'At noon?' }, { resubmits: first.id })
    await page.locator('#back').click()
    await page.locator(`#q-home-${again.id} a`).click()
    await page.locator('#changes').waitFor()
    await page.waitForLoadState() // all of it
    const changes = await page.locator('#changes').innerText()
    assert.match(changes, /- .*bob@example\.org/)
    assert.match(changes, /\+ .*ann@example\.org/)
    await page.locator('#code-1').click()
    await page.locator('#sure').click()
    await state(page, 'settled:approved')
    assert.equal(scene.home.ran(again.id), 1)
    assert.equal(scene.home.ran(first.id), 0)
  },

  'a question, answered by a choice and in words': async (scene) => {
    const page = await scene.enter(scene.home)
    const more = { type: 'question', title: 'Red or blue?' }
    const choice = await ask(scene, page, '', {}, { ...more, options: ['red', 'blue'] })
    await page.locator('#option-2').click()
    assert.equal((await answer(scene, choice)).answer, 'blue')
    await page.locator('#back').click()
    const words = await ask(scene, page, '', {}, more)
    await page.locator('#answer-text').fill('3 shades of green')
    await page.locator('#code-answer').click()
    assert.equal((await answer(scene, words)).answer, '3 shades of green')
  },

  // Consent that is remembered can be taken back, where it is given and where it is listed.
  'always, and no longer': async (scene) => {
    const page = await scene.enter(scene.home)
    const agent = scene.home.agent('crowd')
    const [first, second] = [await agent.submit('tidy', { folder: '/srv/1' }), await agent.submit('tidy', { folder: '/srv/2' })]
    await page.locator(`#q-crowd-${first.id} a`).click()
    await page.locator('#code-6').click()
    await state(page, 'settled:approved')
    assert.equal((await agent.request('tidy', { folder: '/srv/3' })).outcome, 'auto_approved')
    const before = page.url()
    await page.locator('#undo button').click()
    await page.waitForURL((url) => url.searchParams.has('said') && String(url) !== before)
    await page.locator('#back').click()
    await page.locator(`#q-crowd-${second.id} a`).click()
    await page.locator('#code-6').click()
    await state(page, 'settled:approved')
    await page.getByRole('link', { name: 'Remembered' }).click()
    await page.locator(`#g-${second.id} button`).click()
    await page.locator('#note').waitFor()
    const fourth = await agent.submit('tidy', { folder: '/srv/4' })
    await page.getByRole('link', { name: 'Waiting' }).click()
    await page.locator(`#q-crowd-${fourth.id}`).waitFor() // it is asked about again
    await agent.cancel(fourth)
  },
}

// Users ask the agent questions, and the agent resubmits.

import assert from 'node:assert/strict'
import { decided, submitAndOpen, outcomeOf, waitForState } from './decide.mjs'

export const scenarios = {
  // If the facts answer the question, the request stays pending.
  'question to the agent, answered from facts': async (scene) => {
    const page = await scene.login(scene.home)
    const request = await submitAndOpen(scene, page, 'mail', { to: 'bob@example.org', subject: 'Lunch', body: 'At noon?' })
    await page.locator('#ask-text').fill('who will be emailed?')
    await page.locator('#code-ask').click()
    await page.locator('#note').waitFor()
    await page.waitForLoadState()
    assert.match(await page.locator('#note').innerText(), /bob@example\.org/)
    await waitForState(page, 'waiting')
    await page.locator('#ask-text').fill('why am I asked?')
    await page.locator('#code-ask').click()
    await page.locator('#note', { hasText: 'mail:send' }).waitFor()
    await waitForState(page, 'waiting')
    await page.locator('#code-3').click()
    assert.equal((await outcomeOf(scene, request)).outcome, 'denied')
  },

  // Otherwise the agent gets the question. The resubmitted request shows the changes.
  'question to the agent, then resubmitted': async (scene) => {
    const page = await scene.login(scene.home)
    const agent = scene.home.agent('home')
    const first = await submitAndOpen(scene, page, 'mail', { to: 'bob@example.org', subject: 'Lunch', body: 'At noon?' })
    await page.locator('#ask-text').fill('does the body mention the budget?')
    await page.locator('#code-ask').click()
    await page.locator('#sure').click() // the question ends the request
    await decided(page, 'settled:request_more')
    const result = await outcomeOf(scene, first)
    assert.equal(result.outcome, 'request_more')
    assert.match(result.feedback, /does the body mention the budget\?/)
    assert.equal(result.raw.required_response, 'answer_from_facts_or_resubmit')
    const resubmitted = await agent.submit('mail', { to: 'ann@example.org', subject: 'Lunch', body: 'At noon?' }, { resubmits: first.id })
    await page.locator('#back').click()
    await page.locator(`#q-home-${resubmitted.id} a`).click()
    await page.locator('#changes').waitFor()
    await page.waitForLoadState() // wait for the complete page
    const changes = await page.locator('#changes').innerText()
    assert.match(changes, /- .*bob@example\.org/)
    assert.match(changes, /\+ .*ann@example\.org/)
    await page.locator('#code-1').click()
    await page.locator('#sure').click()
    await decided(page, 'settled:approved')
    assert.equal(scene.home.runs(resubmitted.id), 1)
    assert.equal(scene.home.runs(first.id), 0)
  },

  'a question, answered by an option and by text': async (scene) => {
    const page = await scene.login(scene.home)
    const more = { type: 'question', title: 'Red or blue?' }
    const choice = await submitAndOpen(scene, page, '', {}, { ...more, options: ['red', 'blue'] })
    await page.locator('#option-2').click()
    assert.equal((await outcomeOf(scene, choice)).answer, 'blue')
    await decided(page, 'settled:answered')
    await page.locator('#back').click()
    const words = await submitAndOpen(scene, page, '', {}, more)
    await page.locator('#answer-text').fill('3 shades of green')
    await page.locator('#code-answer').click()
    assert.equal((await outcomeOf(scene, words)).answer, '3 shades of green')
  },

  // A grant can be revoked on the page of its request and on the page of grants.
  'always, then revoked': async (scene) => {
    const page = await scene.login(scene.home)
    const agent = scene.home.agent('crowd')
    const [first, second] = [await agent.submit('tidy', { folder: '/srv/1' }), await agent.submit('tidy', { folder: '/srv/2' })]
    await page.locator(`#q-crowd-${first.id} a`).click()
    await page.locator('#code-6').click()
    await decided(page, 'settled:approved')
    assert.equal((await agent.request('tidy', { folder: '/srv/3' })).outcome, 'auto_approved')
    const before = page.url()
    await page.locator('#undo button').click()
    await page.waitForURL((url) => url.searchParams.has('said') && String(url) !== before)
    await page.locator('#back').click()
    await page.locator(`#q-crowd-${second.id} a`).click()
    await page.locator('#code-6').click()
    await decided(page, 'settled:approved')
    await page.getByRole('link', { name: 'Grants' }).click()
    await page.locator(`#g-${second.id} button`).click()
    await page.locator('#note').waitFor()
    const fourth = await agent.submit('tidy', { folder: '/srv/4' })
    await page.getByRole('link', { name: 'Pending' }).click()
    await page.locator(`#q-crowd-${fourth.id}`).waitFor() // it needs approval again
    await agent.cancel(fourth)
  },
}

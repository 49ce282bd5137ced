// People decide: by mouse, by key, in words, at once, too late, and without a script.

import assert from 'node:assert/strict'
import { PHONE } from './scene.mjs'

/** Files a request and opens its page. */
export async function ask(scene, page, tool, args, more = {}) {
  const asked = await scene.home.agent('home').submit(tool, args, more)
  await page.locator(`#q-home-${asked.id} a`).click()
  await page.waitForURL(`**/r/home/${asked.id}*`)
  return asked
}

/** How a request of ours ended. */
export const answer = (scene, asked) => scene.home.agent('home').wait(asked, { timeoutMs: 60_000 })

/**
 * Presses a key until it is heard: pages that have only just opened are deaf, so that nobody types into them. Once
 * more only when it was long enough ago that the page on its way is not meant by it.
 */
async function key(page, name, heard) {
  await page.waitForTimeout(600)
  for (const end = Date.now() + 60_000; !heard(page.url()) && Date.now() < end;) {
    await page.keyboard.press(name)
    await page.waitForURL((url) => heard(String(url)), { timeout: 10_000, waitUntil: 'commit' }).catch(() => {})
  }
  assert.ok(heard(page.url()), `nobody heard ${name}`)
}

/** Awaits what a page says has become of its request. */
export async function state(page, text) {
  await page.locator(`#state[data-state="${text}"]`).waitFor()
  await page.waitForLoadState()
}

export const scenarios = {
  // The main road, by mouse, for an effect that can be taken back.
  'sandboxed request, approved by mouse': async (scene) => {
    const page = await scene.enter(scene.home)
    await page.evaluate(() => { globalThis.here = true })
    const told = scene.home.sandboxed('tidy', '--arg', 'folder=/srv/inbox')
    const row = page.locator('.row', { hasText: '/srv/inbox' })
    await row.waitFor() // it comes by itself
    assert.ok(await page.evaluate(() => globalThis.here), 'the page was loaded again')
    await row.locator('a').click()
    await page.locator('#code-1').click()
    await state(page, 'settled:approved')
    const response = await told
    assert.equal(response.status, 'approved')
    assert.equal(response.decision.via, 'web')
    assert.match(JSON.stringify(response.result), /tidied/)
    assert.equal(scene.home.ran(response.request_id), 1)
    assert.match(await page.locator('#state').innerText(), /tidied/)
  },

  // The same by keyboard alone, for one that cannot: it asks once more.
  'sandboxed request, approved by key': async (scene) => {
    const page = await scene.enter(scene.home)
    const told = scene.home.sandboxed('post', '--arg', 'text=by key')
    await page.locator('.row', { hasText: 'by key' }).waitFor()
    await page.locator('.row', { hasText: 'by key' }).locator('a').focus()
    await page.keyboard.press('Enter')
    await page.locator('#code-1').waitFor()
    const id = await page.locator('#request').getAttribute('data-id')
    await key(page, 'a', (url) => url.endsWith('/decide'))
    await page.locator('#careful').waitFor()
    assert.equal(scene.home.ran(id), 0, 'it ran before anybody was sure')
    await key(page, 'a', (url) => !url.endsWith('/decide'))
    await state(page, 'settled:approved')
    assert.equal((await told).status, 'approved')
    assert.equal(scene.home.ran(id), 1)
  },

  'not sure after all': async (scene) => {
    const page = await scene.enter(scene.home)
    const asked = await ask(scene, page, 'post', { text: 'not sure' })
    await page.locator('#code-1').click()
    await page.locator('#careful').waitFor()
    await page.locator('#not-sure').click()
    await state(page, 'waiting')
    await page.locator('#code-3').click()
    assert.equal((await answer(scene, asked)).outcome, 'denied')
    assert.equal(scene.home.ran(asked.id), 0)
  },

  'deny with a reason': async (scene) => {
    const page = await scene.enter(scene.home)
    const asked = await ask(scene, page, 'post', { text: 'denied' })
    await page.locator('#deny-text').fill('not before noon')
    await page.keyboard.press('Enter')
    await state(page, 'settled:denied')
    const told = await answer(scene, asked)
    assert.equal(told.outcome, 'denied')
    assert.match(JSON.stringify(told.raw), /not before noon/)
    assert.equal(scene.home.ran(asked.id), 0)
  },

  'deny by key': async (scene) => {
    const page = await scene.enter(scene.home)
    const asked = await ask(scene, page, 'tidy', { folder: '/srv/denied' })
    await page.locator('#code-3').waitFor()
    await page.locator('h1').click() // the focus is in no field
    await key(page, 'd', (url) => url.includes('said='))
    assert.equal((await answer(scene, asked)).outcome, 'denied')
  },

  // Letters that somebody types are not keys.
  'letters in a field decide nothing': async (scene) => {
    const page = await scene.enter(scene.home)
    const asked = await ask(scene, page, 'tidy', { folder: '/srv/typed' })
    await page.waitForTimeout(600) // until keys would be heard: there is nothing to see of that
    await page.locator('#deny-text').pressSequentially('and a day')
    assert.equal(await page.locator('#state').getAttribute('data-state'), 'waiting')
    await scene.home.agent('home').cancel(asked)
    await state(page, 'settled:cancelled')
  },

  'code 4: as it is, with a note': async (scene) => {
    const page = await scene.enter(scene.home)
    const asked = await ask(scene, page, 'tidy', { folder: '/srv/note' })
    await page.locator('#more summary').click()
    await page.locator('#note-text').fill('keep the drafts\nand the letters')
    await page.locator('#code-4').click()
    await state(page, 'settled:approved')
    const told = await answer(scene, asked)
    assert.equal(told.note, 'keep the drafts\nand the letters')
    assert.equal(scene.home.ran(asked.id), 1)
  },

  'code 5: something else instead': async (scene) => {
    const page = await scene.enter(scene.home)
    const asked = await ask(scene, page, 'post', { text: 'at five' })
    await page.locator('#more summary').click()
    await page.locator('#change-text').fill("say six o'clock")
    await page.locator('#code-5').click()
    await state(page, 'settled:overridden')
    const told = await answer(scene, asked)
    assert.equal(told.override, "say six o'clock")
    assert.equal(scene.home.ran(asked.id), 0)
  },

  // Both are sent at the same moment; one of them decides.
  'two tabs at once': async (scene) => {
    const one = await scene.enter(scene.home, {})
    const other = await scene.tab(one.context())
    await other.goto(one.url())
    await Promise.all([one, other].map((page) => page.route('**/events*', (asked) => asked.abort()))) // neither hears of the other
    const asked = await scene.home.agent('home').submit('tidy', { folder: '/srv/race' })
    await scene.eventually(async () => (await one.goto(new URL(`r/home/${asked.id}`, other.url()).href)).ok())
    await other.goto(one.url())
    await Promise.all([one.locator('#code-1').dispatchEvent('click'), other.locator('#code-3').dispatchEvent('click')])
    const notes = await Promise.all([one, other].map(async (page) => {
      await page.locator('#note').waitFor()
      await page.waitForLoadState()
      return { won: (await page.locator('#note').getAttribute('class')).split(' ').includes('done'), text: await page.locator('#note').innerText() }
    }))
    assert.equal(notes.filter((n) => n.won).length, 1, JSON.stringify(notes))
    const told = await answer(scene, asked)
    assert.equal(told.outcome, notes[0].won ? 'approved' : 'denied')
    assert.equal(scene.home.ran(asked.id), notes[0].won ? 1 : 0)
    assert.match(notes.find((n) => !n.won).text, /already|too late/i)
    await Promise.all([one, other].map((page) => page.unroute('**/events*').then(() => page.reload())))
    await Promise.all([state(one, `settled:${told.outcome}`), state(other, `settled:${told.outcome}`)])
    scene.expect(/ERR_FAILED|404/)
  },

  'decided in another tab': async (scene) => {
    const one = await scene.enter(scene.home)
    const asked = await ask(scene, one, 'tidy', { folder: '/srv/elsewhere' })
    const other = await scene.enter(scene.home)
    const row = other.locator(`#q-home-${asked.id}`)
    await row.waitFor()
    await one.locator('#code-3').click()
    await row.waitFor({ state: 'detached' })
    await state(one, 'settled:denied')
  },

  'expired while it is open': async (scene) => {
    const page = await scene.enter(scene.home)
    const list = page.url()
    let asked
    let open = false
    for (let sec = 2; !open && sec < 100; sec *= 2) { // a busy machine needs longer to open it
      asked = await scene.home.agent('home').submit('tidy', { folder: '/srv/late' }, { expiresInSec: sec })
      await scene.eventually(async () => (await page.goto(new URL(`r/home/${asked.id}`, list).href)).ok())
      open = await page.locator('#state').getAttribute('data-state') === 'waiting'
    }
    assert.ok(open, 'it has expired before it was open')
    await state(page, 'settled:expired')
    scene.expect(/404/) // until the gate has it
    assert.equal(await page.locator('#code-1').count(), 0, 'it can still be approved')
    assert.equal((await answer(scene, asked)).outcome, 'expired')
  },

  'cancelled while it is open': async (scene) => {
    const page = await scene.enter(scene.home)
    const asked = await ask(scene, page, 'post', { text: 'never mind' })
    await scene.home.agent('home').cancel(asked)
    await state(page, 'settled:cancelled')
    assert.equal(await page.locator('#code-1').count(), 0, 'it can still be approved')
    assert.equal((await answer(scene, asked)).outcome, 'cancelled')
  },

  'without a script': async (scene) => {
    const page = await scene.enter(scene.home, { javaScriptEnabled: false })
    const agent = scene.home.agent('home')
    const good = await agent.submit('post', { text: 'plain yes' })
    const bad = await agent.submit('tidy', { folder: '/srv/plain-no' })
    const list = page.url()
    await scene.eventually(async () => {
      await page.goto(list)
      return await page.locator(`#q-home-${good.id}`).count() + await page.locator(`#q-home-${bad.id}`).count() === 2
    })
    await page.locator(`#q-home-${good.id} a`).click()
    await page.locator('#code-1').click()
    await page.locator('#sure').click()
    assert.equal((await answer(scene, good)).outcome, 'approved')
    assert.equal(scene.home.ran(good.id), 1)
    await page.locator('#back').click()
    await page.locator(`#q-home-${bad.id} a`).click()
    await page.locator('#deny-text').fill('no')
    await page.locator('#code-3').click()
    await page.locator('#note').waitFor()
    assert.equal((await answer(scene, bad)).outcome, 'denied')
    await page.locator('#leave').click()
    await page.goto(list)
    await page.locator('#refused').waitFor()
    scene.expect(/403/)
  },

  // The whole way with a thumb.
  'on a phone': async (scene) => {
    const page = await scene.enter(scene.home, PHONE)
    const asked = await scene.home.agent('home').submit('post', { text: 'x'.repeat(300) + ' from a phone' }, { title: 'y'.repeat(200) })
    const row = page.locator(`#q-home-${asked.id} a`)
    await row.waitFor()
    await scene.fits(page, 'the list')
    await scene.tap(row, page.locator('#code-1'))
    await scene.fits(page, 'the request')
    await scene.tap(page.locator('#code-1'), page.locator('#sure'))
    await scene.fits(page, 'are you sure')
    await scene.tap(page.locator('#sure'), page.locator('#state[data-state="settled:approved"]'))
    await scene.fits(page, 'the outcome')
    assert.equal((await answer(scene, asked)).outcome, 'approved')
  },

  'in Italian': async (scene) => {
    const page = await scene.enter(scene.home, { locale: 'it-IT' })
    await page.goto(new URL('help', page.url()).href)
    await page.locator('#lang').selectOption('it')
    await page.locator('#save').click()
    await page.locator('html[lang=it]').waitFor()
    await page.goto(new URL('./', page.url()).href)
    const asked = await ask(scene, page, 'post', { text: 'ciao' })
    assert.match(await page.locator('h1').innerText(), /Vuoi che pubblichi su X\?/)
    await page.locator('#code-3').click()
    await state(page, 'settled:denied')
    assert.equal((await answer(scene, asked)).outcome, 'denied')
    const english = /\b(the|request|waiting|approve|deny|why|agent says)\b/i
    const text = await page.locator('main').innerText()
    assert.doesNotMatch(text.replaceAll('permesso', ''), english)
  },

  'log out, and a link that was used': async (scene) => {
    const page = await scene.visitor()
    const link = await scene.home.link()
    await page.goto(link)
    await page.waitForURL(/\/s\//)
    const list = page.url()
    const again = await scene.visitor()
    await again.goto(link)
    await again.locator('#refused').waitFor()
    await again.goto(list)
    await again.locator('#refused').waitFor()
    await page.locator('#leave').click()
    await page.goto(list)
    await page.locator('#refused').waitFor()
    scene.expect(/403/)
  },
}

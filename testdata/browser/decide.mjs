// Users decide: by mouse, by key, with text, concurrently, too late, and without JavaScript.

import assert from 'node:assert/strict'
import { PHONE } from './scene.mjs'

/** Submits a request and opens its page. */
export async function submitAndOpen(scene, page, tool, args, more = {}) {
  const request = await scene.home.agent('home').submit(tool, args, more)
  await page.locator(`#q-home-${request.id} a`).click()
  await page.waitForURL(`**/r/home/${request.id}*`)
  return request
}

/** Waits for the outcome of a request. */
export const outcomeOf = (scene, request) => scene.home.agent('home').wait(request, { timeoutMs: 60_000 })

/**
 * Presses a key until it takes effect: a page ignores keys just after loading. Each try waits long enough for the
 * next page, so that the key does not act on that page.
 */
async function key(page, name, done) {
  await page.waitForTimeout(600)
  for (const end = Date.now() + 60_000; !done(page.url()) && Date.now() < end;) {
    await page.keyboard.press(name)
    await page.waitForURL((url) => done(String(url)), { timeout: 30_000, waitUntil: 'commit' }).catch(() => {})
  }
  assert.ok(done(page.url()), `key ${name} had no effect`)
}

/** Waits until a request page shows a state. */
export async function waitForState(page, text) {
  await page.locator(`#state[data-state="${text}"]`).waitFor()
  await page.waitForLoadState()
}

/** Opens the decided request from the page that follows a decision, and waits for its state. */
export async function decided(page, text) {
  await page.locator('#note').waitFor()
  await page.waitForLoadState()
  if (await page.locator('#decided').count()) await page.locator('#decided').click()
  await waitForState(page, text)
}

export const scenarios = {
  // The usual case, by mouse, for a reversible action.
  'sandboxed request, approved by mouse': async (scene) => {
    const page = await scene.login(scene.home)
    await page.evaluate(() => { globalThis.here = true })
    const result = scene.home.sandboxed('tidy', '--arg', 'folder=/srv/inbox')
    const row = page.locator('.row', { hasText: '/srv/inbox' })
    await row.waitFor() // without a reload
    assert.ok(await page.evaluate(() => globalThis.here), 'the page was loaded again')
    await row.locator('a').click()
    await page.locator('#code-1').click()
    await decided(page, 'settled:approved')
    const response = await result
    assert.equal(response.status, 'approved')
    assert.equal(response.decision.via, 'web')
    assert.match(JSON.stringify(response.result), /tidied/)
    assert.equal(scene.home.runs(response.request_id), 1)
    assert.match(await page.locator('#state').innerText(), /tidied/)
  },

  // The same by keyboard, for an irreversible action: it needs a confirmation.
  'sandboxed request, approved by key': async (scene) => {
    const page = await scene.login(scene.home)
    const result = scene.home.sandboxed('post', '--arg', 'text=by key')
    await page.locator('.row', { hasText: 'by key' }).waitFor()
    await page.locator('.row', { hasText: 'by key' }).locator('a').focus()
    await page.keyboard.press('Enter')
    await page.locator('#code-1').waitFor()
    const id = await page.locator('#request').getAttribute('data-id')
    await key(page, 'a', (url) => url.endsWith('/decide'))
    await page.locator('#careful').waitFor()
    assert.equal(scene.home.runs(id), 0, 'it ran before the confirmation')
    await key(page, 'a', (url) => !url.endsWith('/decide'))
    await decided(page, 'settled:approved')
    assert.equal((await result).status, 'approved')
    assert.equal(scene.home.runs(id), 1)
  },

  'confirmation declined': async (scene) => {
    const page = await scene.login(scene.home)
    const request = await submitAndOpen(scene, page, 'post', { text: 'not sure' })
    await page.locator('#code-1').click()
    await page.locator('#careful').waitFor()
    await page.locator('#not-sure').click()
    await waitForState(page, 'waiting')
    await page.locator('#code-3').click()
    assert.equal((await outcomeOf(scene, request)).outcome, 'denied')
    assert.equal(scene.home.runs(request.id), 0)
  },

  'deny with a reason': async (scene) => {
    const page = await scene.login(scene.home)
    const request = await submitAndOpen(scene, page, 'post', { text: 'denied' })
    await page.locator('#deny-text').fill('not before noon')
    await page.keyboard.press('Enter')
    await decided(page, 'settled:denied')
    const result = await outcomeOf(scene, request)
    assert.equal(result.outcome, 'denied')
    assert.match(JSON.stringify(result.raw), /not before noon/)
    assert.equal(scene.home.runs(request.id), 0)
  },

  'deny by key': async (scene) => {
    const page = await scene.login(scene.home)
    const request = await submitAndOpen(scene, page, 'tidy', { folder: '/srv/denied' })
    await page.locator('#code-3').waitFor()
    await page.locator('h1').click() // remove the focus from fields
    await key(page, 'd', (url) => url.includes('said='))
    assert.equal((await outcomeOf(scene, request)).outcome, 'denied')
  },

  // Letters typed in a field are not keys.
  'letters in a field decide nothing': async (scene) => {
    const page = await scene.login(scene.home)
    const request = await submitAndOpen(scene, page, 'tidy', { folder: '/srv/typed' })
    await page.waitForTimeout(600) // until the page accepts keys
    await page.locator('#deny-text').pressSequentially('and a day')
    assert.equal(await page.locator('#state').getAttribute('data-state'), 'waiting')
    await scene.home.agent('home').cancel(request)
    await waitForState(page, 'settled:cancelled')
  },

  'code 4: approved with a note': async (scene) => {
    const page = await scene.login(scene.home)
    const request = await submitAndOpen(scene, page, 'tidy', { folder: '/srv/note' })
    await page.locator('#more summary').click()
    await page.locator('#note-text').fill('keep the drafts\nand the letters')
    await page.locator('#code-4').click()
    await decided(page, 'settled:approved')
    const result = await outcomeOf(scene, request)
    assert.equal(result.note, 'keep the drafts\nand the letters')
    assert.equal(scene.home.runs(request.id), 1)
  },

  'code 5: change requested': async (scene) => {
    const page = await scene.login(scene.home)
    const request = await submitAndOpen(scene, page, 'post', { text: 'at five' })
    await page.locator('#more summary').click()
    await page.locator('#change-text').fill("say six o'clock")
    await page.locator('#code-5').click()
    await decided(page, 'settled:overridden')
    const result = await outcomeOf(scene, request)
    assert.equal(result.override, "say six o'clock")
    assert.equal(scene.home.runs(request.id), 0)
  },

  // Two decisions at the same time: one of them wins.
  'two tabs at once': async (scene) => {
    const one = await scene.login(scene.home, {})
    const other = await scene.tab(one.context())
    await other.goto(one.url())
    await Promise.all([one, other].map((page) => page.route('**/events*', (route) => route.abort()))) // so that no tab sees the other decision
    const request = await scene.home.agent('home').submit('tidy', { folder: '/srv/race' })
    await scene.eventually(async () => (await one.goto(new URL(`r/home/${request.id}`, other.url()).href)).ok())
    await other.goto(one.url())
    await Promise.all([one.locator('#code-1').dispatchEvent('click'), other.locator('#code-3').dispatchEvent('click')])
    const notes = await Promise.all([one, other].map(async (page) => {
      await page.locator('#note').waitFor()
      await page.waitForLoadState()
      return { won: (await page.locator('#note').getAttribute('class')).split(' ').includes('done'), text: await page.locator('#note').innerText() }
    }))
    assert.equal(notes.filter((n) => n.won).length, 1, JSON.stringify(notes))
    const result = await outcomeOf(scene, request)
    assert.equal(result.outcome, notes[0].won ? 'approved' : 'denied')
    assert.equal(scene.home.runs(request.id), notes[0].won ? 1 : 0)
    assert.match(notes.find((n) => !n.won).text, /already|too late/i)
    await Promise.all([one, other].map((page) => page.unroute('**/events*').then(() => page.reload())))
    await Promise.all([decided(one, `settled:${result.outcome}`), decided(other, `settled:${result.outcome}`)])
    scene.ignoreErrors(/ERR_FAILED|404/)
  },

  'decided in another tab': async (scene) => {
    const one = await scene.login(scene.home)
    const request = await submitAndOpen(scene, one, 'tidy', { folder: '/srv/elsewhere' })
    const other = await scene.login(scene.home)
    const row = other.locator(`#q-home-${request.id}`)
    await row.waitFor()
    await one.locator('#code-3').click()
    await row.waitFor({ state: 'detached' })
    await decided(one, 'settled:denied')
  },

  'expired while its page is open': async (scene) => {
    const page = await scene.login(scene.home)
    const list = page.url()
    let request
    let open = false
    for (let sec = 2; !open && sec < 100; sec *= 2) { // a busy machine needs more time to open the page
      request = await scene.home.agent('home').submit('tidy', { folder: '/srv/late' }, { expiresInSec: sec })
      await scene.eventually(async () => (await page.goto(new URL(`r/home/${request.id}`, list).href)).ok())
      open = await page.locator('#state').getAttribute('data-state') === 'waiting'
    }
    assert.ok(open, 'it expired before its page was open')
    await waitForState(page, 'settled:expired')
    scene.ignoreErrors(/404/) // until the daemon has read the request
    assert.equal(await page.locator('#code-1').count(), 0, 'it can still be approved')
    assert.equal((await outcomeOf(scene, request)).outcome, 'expired')
  },

  'cancelled while its page is open': async (scene) => {
    const page = await scene.login(scene.home)
    const request = await submitAndOpen(scene, page, 'post', { text: 'never mind' })
    await scene.home.agent('home').cancel(request)
    await waitForState(page, 'settled:cancelled')
    assert.equal(await page.locator('#code-1').count(), 0, 'it can still be approved')
    assert.equal((await outcomeOf(scene, request)).outcome, 'cancelled')
  },

  'without JavaScript': async (scene) => {
    const page = await scene.login(scene.home, { javaScriptEnabled: false })
    const agent = scene.home.agent('home')
    const good = await agent.submit('post', { text: 'plain yes' })
    const bad = await agent.submit('tidy', { folder: '/srv/plain-no' })
    const list = page.url()
    await scene.eventually(async () => {
      await page.goto(list)
      return await page.locator(`#q-home-${good.id}`).count() + await page.locator(`#q-home-${bad.id}`).count() === 2
    })
    await page.locator(`#q-home-${good.id} a`).click()
    // Buttons of a decision take no click for 400 ms. Without JavaScript the driver does not try a click again.
    const press = async (button) => {
      await page.locator(button).waitFor()
      await page.waitForTimeout(800)
      await page.locator(button).click()
    }
    await press('#code-1')
    await press('#sure')
    assert.equal((await outcomeOf(scene, good)).outcome, 'approved')
    assert.equal(scene.home.runs(good.id), 1)
    await page.goto(list)
    await page.locator(`#q-home-${bad.id} a`).click()
    await page.locator('#deny-text').fill('no')
    await press('#code-3')
    await page.locator('#note').waitFor()
    assert.equal((await outcomeOf(scene, bad)).outcome, 'denied')
    await page.locator('#leave').click()
    await page.goto(list)
    await page.locator('#refused').waitFor()
    scene.ignoreErrors(/403/)
  },

  // Every step by touch.
  'on a phone': async (scene) => {
    const page = await scene.login(scene.home, PHONE)
    const request = await scene.home.agent('home').submit('post', { text: 'x'.repeat(300) + ' from a phone' }, { title: 'y'.repeat(200) })
    const row = page.locator(`#q-home-${request.id} a`)
    await row.waitFor()
    await scene.fits(page, 'the list')
    await scene.tap(row, page.locator('#code-1'))
    await scene.fits(page, 'the request')
    await scene.tap(page.locator('#code-1'), page.locator('#sure'))
    await scene.fits(page, 'the confirmation')
    await scene.tap(page.locator('#sure'), page.locator('#decided'))
    await scene.fits(page, 'the next page')
    await scene.tap(page.locator('#decided'), page.locator('#state[data-state="settled:approved"]'))
    await scene.fits(page, 'the outcome')
    assert.equal((await outcomeOf(scene, request)).outcome, 'approved')
  },

  'in Italian': async (scene) => {
    const page = await scene.login(scene.home, { locale: 'it-IT' })
    await page.goto(new URL('help', page.url()).href)
    await page.locator('#lang').selectOption('it')
    await page.locator('#save').click()
    await page.locator('html[lang=it]').waitFor()
    await page.goto(new URL('./', page.url()).href)
    const request = await submitAndOpen(scene, page, 'post', { text: 'ciao' })
    assert.match(await page.locator('h1').innerText(), /Vuoi che pubblichi su X\?/)
    await page.locator('#code-3').click()
    await decided(page, 'settled:denied')
    assert.equal((await outcomeOf(scene, request)).outcome, 'denied')
    const english = /\b(the|request|waiting|approve|deny|why|agent says)\b/i
    const text = await page.locator('main').innerText()
    assert.doesNotMatch(text.replaceAll('permesso', ''), english)
  },

  'log out, and a used link': async (scene) => {
    const page = await scene.newContext()
    const link = await scene.home.link()
    await page.goto(link)
    await page.waitForURL(/\/s\//)
    const list = page.url()
    const second = await scene.newContext()
    await second.goto(link)
    await second.locator('#refused').waitFor()
    await second.goto(list)
    await second.locator('#refused').waitFor()
    await page.locator('#leave').click()
    await page.goto(list)
    await page.locator('#refused').waitFor()
    scene.ignoreErrors(/403/)
  },
}

// What a person sees on the pages, and where: on a phone, after a decision, in a pause.

import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { PHONE } from './scene.mjs'

const LONG = { folder: '/srv/long', more: 'a line of a long text\n'.repeat(200) }

/** Opens the page of a request, as soon as the daemon has read it. */
async function open(scene, page, base, workspace, request) {
  const url = new URL(`r/${workspace}/${request.id}`, base).href
  await scene.eventually(async () => (await page.goto(url)).ok())
  scene.ignoreErrors(/404/)
}

/** The values of CSS properties of an element, or of its pseudo-element. */
const css = (locator, property, pseudo) => locator.evaluate((e, [name, p]) => getComputedStyle(e, p).getPropertyValue(name), [property, pseudo])

/** Asserts that an element is completely in the window. It is found and measured at once: a message of the server may replace it. */
async function inView(page, selector, why) {
  const box = await page.evaluate((s) => document.querySelector(s)?.getBoundingClientRect().toJSON() ?? null, selector)
  const { height } = page.viewportSize()
  assert.ok(box && box.height > 0 && box.y >= 0 && box.y + box.height <= height, `${why}: ${selector} is at ${JSON.stringify(box)} in a window of ${height}`)
}

/** Checks the page as it is now for everybody: axe, its width, and its colors in the dark. */
async function look(scene, page, where) {
  await scene.fits(page, where)
  await scene.accessible(page, where)
  await page.emulateMedia({ colorScheme: 'dark' })
  await scene.legible(page, `${where}, dark`)
  await page.emulateMedia({ colorScheme: 'light' })
}

/** Asserts that a button takes no click in its first 400 ms. */
async function takesNoEarlyClick(page, selector) {
  const found = await page.locator(selector).evaluate((e) => {
    e.style.animation = 'none'
    e.getBoundingClientRect()
    e.style.animation = ''
    const [animation] = e.getAnimations()
    if (!animation) return 'no animation'
    animation.pause()
    animation.currentTime = 399
    const events = getComputedStyle(e).pointerEvents
    animation.finish()
    return `${events}, then ${getComputedStyle(e).pointerEvents}`
  })
  assert.equal(found, 'none, then auto', selector)
}

/**
 * Clicks a button as if the page had opened a moment ago, which must do nothing. The animation that keeps clicks away
 * is started again and stopped, because a busy machine may need longer than it lasts.
 */
async function clickTooEarly(page, selector) {
  const button = page.locator(selector)
  const duration = await button.evaluate((e) => {
    e.style.animation = 'none'
    e.getBoundingClientRect()
    e.style.animation = ''
    const [animation] = e.getAnimations()
    animation.pause()
    animation.currentTime = animation.effect.getTiming().duration - 1
    return animation.effect.getTiming().duration
  })
  assert.equal(duration, 400, 'milliseconds')
  const box = await button.boundingBox()
  const url = page.url()
  await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2)
  await page.waitForTimeout(300)
  assert.equal(page.url(), url, 'a page that has just opened took a click')
  await button.evaluate((e) => e.getAnimations()[0].finish())
}

/** A pause of everything is told once on each page. It needs a gate without other scenarios: nothing runs in a pause. */
async function pausedBanner(scene) {
  const page = await scene.login(scene.paused, {})
  const list = page.url()
  const request = await scene.paused.agent('work').submit('tidy', { folder: '/srv/paused' })
  await open(scene, page, list, 'work', request)
  await scene.paused.operator('pause', '--reason', 'lunch')
  try {
    await page.locator('.paused', { hasText: 'lunch' }).waitFor() // without a reload
    for (const path of ['', 'workspaces', `r/work/${request.id}`]) {
      await page.goto(new URL(path, list).href)
      assert.equal((await page.locator('main').innerText()).match(/lunch/g).length, 1, `the pause on ${path || 'the list'}`)
      assert.match(await page.locator('.paused').innerText(), /^Everything paused since .* by .*\(lunch\)/)
      await look(scene, page, `${path || 'the list'} in a pause`)
      if (path === 'workspaces') assert.deepEqual(await page.locator('form:is([action$=pause], [action$=resume])').allInnerTexts(), ['Resume everything'])
    }
  } finally {
    await scene.paused.operator('resume')
  }
  await page.locator('.paused').waitFor({ state: 'detached' })
  await scene.paused.agent('work').cancel(request)
}

export const scenarios = {
  'pages: recipients are chips': async (scene) => {
    const page = await scene.login(scene.site)
    const names = ['ann', 'bob', 'carla', 'dan', 'eva', 'fay', 'gus', 'hugo', 'ida']
    const to = [...names.map((name) => `${name}@example.org`), 'max@press.example', 'nina@press.example', 'olga@example.net']
    const request = await scene.site.agent('work').submit('send_mail', { to, subject: 'Board', body: 'At ten.' })
    await open(scene, page, page.url(), 'work', request)
    const chips = await page.locator('#exact .chip').allInnerTexts()
    assert.equal(chips.length, 12)
    for (const address of to) assert.equal(chips.filter((text) => text.includes(address)).length, 1, `${address} in ${chips}`)
    const [first, second] = await Promise.all([0, 1].map((n) => page.locator('#exact .chip').nth(n).boundingBox()))
    await look(scene, page, 'chips')
    assert.ok(second.x > first.x && Math.abs(second.y - first.y) < 2, 'chips stand beside each other')
    await scene.site.agent('work').cancel(request)
  },

  'pages: numbered lines, colored changes, real indentation': async (scene) => {
    const page = await scene.login(scene.site)
    const file = `${scene.site.effects}.conf`
    writeFileSync(file, 'one\ntwo\nrate 10\n')
    const content = 'one\n    spaces\n\ttab\ntwo\nrate 20\n'
    const request = await scene.site.agent('work').submit('edit_file', { path: file, content })
    await open(scene, page, page.url(), 'work', request)
    const lines = page.locator('#exact [data-n]')
    const shown = await lines.evaluateAll((all) => all.map((e) => `${e.dataset.n} ${e.dataset.sign ?? ' '} ${e.lastChild.textContent}`))
    assert.deepEqual(shown, ['1   one', '2 +     spaces', '3 + \ttab', '4   two', '3 - rate 10', '5 + rate 20'])
    assert.match(await css(lines.nth(1), 'content', '::before'), /2/, 'the number is visible')
    const colors = await Promise.all([0, 1, 4].map((n) => css(lines.nth(n), 'background-color')))
    await look(scene, page, 'a change')
    assert.equal(new Set(colors).size, 3, `same, added and removed lines have these backgrounds: ${colors}`)
    const indents = await lines.evaluateAll((all) => all.slice(0, 3).map((e) => {
      const text = e.lastChild
      const range = document.createRange()
      const at = text.textContent.search(/\S/)
      range.setStart(text, at)
      range.setEnd(text, at + 1)
      return range.getBoundingClientRect().x
    }))
    const [spaces, tab] = [indents[1] - indents[0], indents[2] - indents[0]]
    assert.ok(spaces > 0 && Math.abs(tab / spaces - 2) < 0.05, `a tab is eight columns wide, four spaces are four: ${tab} and ${spaces} px`)
    await scene.site.agent('work').cancel(request)
  },

  'pages: a phone always shows the decision': async (scene) => {
    const page = await scene.login(scene.site, PHONE)
    const request = await scene.site.agent('work').submit('tidy', LONG)
    await open(scene, page, page.url(), 'work', request)
    for (const where of ['the top', 'the end']) {
      await inView(page, '#code-1', where)
      await inView(page, '#code-3', where)
      await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight))
    }
    const [back, bar] = await Promise.all([page.locator('#back').boundingBox(), page.locator('#decide').boundingBox()])
    assert.ok(back.y + back.height <= bar.y, 'the bar covers the end of the page')
    await look(scene, page, 'a request on a phone')
    await scene.site.agent('work').cancel(request)
  },

  'pages: the next request opens, with what was decided and Undo': async (scene) => {
    const page = await scene.login(scene.site, {})
    const agent = scene.site.agent('next')
    const requests = []
    for (const name of ['one', 'two', 'three']) requests.push(await agent.submit('tidy', { folder: `/srv/${name}` }))
    await open(scene, page, page.url(), 'next', requests[2])
    await open(scene, page, page.url().replace(/r\/.*/, ''), 'next', requests[0])
    await page.locator('#code-6').click()
    await page.waitForURL((url) => url.searchParams.has('said'))
    assert.ok(![requests[0].id, null].includes(await page.locator('#request').getAttribute('data-id')), 'another request is open')
    assert.match(await page.locator('#note').innerText(), /Approved.*tidy "\/srv\/one".*Always: tidy/)
    assert.doesNotMatch(await page.locator('#note').innerText(), /send undo/)
    await inView(page, '#note', 'after the decision')
    await look(scene, page, 'what was decided')
    assert.equal((await agent.wait(requests[0])).outcome, 'approved')
    await page.locator('#note #undo button').click()
    await page.locator('#note', { hasText: 'Always: tidy' }).waitFor()
    const again = await agent.submit('tidy', { folder: '/srv/again' })
    await open(scene, page, page.url().replace(/r\/.*/, ''), 'next', again) // it needs approval again
    await open(scene, page, page.url().replace(/r\/.*/, ''), 'next', requests[1])

    await clickTooEarly(page, '#code-1')
    await page.locator('#code-1').dblclick() // the second click is not for the next request
    assert.equal((await agent.wait(requests[1])).outcome, 'approved')
    await page.locator('#note').waitFor()
    await page.waitForTimeout(1000) // nothing more may happen
    assert.match(await page.locator('#decided').getAttribute('href'), new RegExp(requests[1].id), 'a double click decided another request')
    for (const left of [requests[2], again]) await agent.cancel(left)
  },

  'pages: decided elsewhere': async (scene) => {
    const page = await scene.login(scene.site, PHONE)
    const request = await scene.site.agent('work').submit('tidy', LONG)
    await open(scene, page, page.url(), 'work', request)
    await page.evaluate(() => scrollTo(0, 1000))
    await scene.site.operator('deny', request.id, 'not today')
    await page.locator('#news', { hasText: /denied/i }).waitFor()
    await inView(page, '#news p', 'after a decision elsewhere')
    assert.equal(await page.locator('#code-1').count(), 0)
    await look(scene, page, 'decided elsewhere')
  },

  'pages: the list is filtered and sorted': async (scene) => {
    const page = await scene.login(scene.site, {})
    const agent = scene.site.agent('sorted')
    const list = page.url()
    const late = await agent.submit('tidy', { folder: '/srv/late' }, { expiresInSec: 500 })
    const mail = await agent.submit('send_mail', { to: 'bob@example.org', subject: 'Sorted', body: '…' })
    const soon = await agent.submit('tidy', { folder: '/srv/soon' }, { expiresInSec: 300 })
    for (const { id } of [late, mail, soon]) await page.locator(`#q-sorted-${id}`).waitFor()
    const rows = () => page.locator('#waiting > .row').evaluateAll((all) => all.map((row) => row.id.replace('q-sorted-', '')))
    await page.locator('#in').selectOption('sorted')
    await page.waitForURL(/in=sorted/)
    assert.deepEqual(await rows(), [late.id, mail.id, soon.id])
    await page.locator('#sort').selectOption('due')
    await page.waitForURL(/sort=due/)
    assert.deepEqual(await rows(), [soon.id, late.id, mail.id])
    const first = await agent.submit('tidy', { folder: '/srv/first' }, { expiresInSec: 200 })
    await page.locator(`#q-sorted-${first.id}`).waitFor() // without a reload
    assert.deepEqual(await rows(), [first.id, soon.id, late.id, mail.id])
    await page.locator('#show').selectOption('irreversible')
    await page.waitForURL(/show=irreversible/)
    assert.deepEqual(await rows(), [mail.id])
    await page.goto(`${list}?in=sorted&q=SRV/so`)
    assert.deepEqual(await rows(), [soon.id])
    assert.match(await page.locator('#count').innerText(), /1 of \d+/)
    await look(scene, page, 'a filtered list')
    await agent.cancel(soon)
    await page.locator(`#q-sorted-${soon.id}`).waitFor({ state: 'detached' })
    for (const request of [late, mail, first]) await agent.cancel(request)
  },

  'pages: titles and history say verb, object and outcome': async (scene) => {
    const page = await scene.login(scene.site, {})
    const agent = scene.site.agent('work')
    const list = page.url()
    const request = await agent.submit('send_mail', { to: 'bob@example.org', subject: 'Titles', body: '…' })
    const row = page.locator(`#q-work-${request.id}`)
    await row.waitFor()
    assert.equal(await row.locator('a').innerText(), 'Send a mail "Titles" -> bob@example.org')
    await open(scene, page, list, 'work', request)
    assert.match(await page.title(), /^(\(\d+\) )?Send a mail "Titles" -> bob@example\.org/)
    assert.match(await page.locator('h1').innerText(), /send a mail.*"Titles" -> bob@example\.org/s)
    await scene.site.operator('deny', request.id, 'wrong recipient')
    await agent.wait(request)
    const done = await agent.submit('tidy', { folder: '/srv/history' })
    await open(scene, page, list, 'work', done)
    await scene.site.approve(done.id)
    await agent.wait(done)
    await page.goto(new URL('history', list).href)
    const denied = page.locator('#history > .row', { hasText: 'Send a mail "Titles" -> bob@example.org' })
    assert.match(await denied.innerText(), /denied[^]*wrong recipient/i)
    const ran = page.locator('#history > .row', { hasText: 'Tidy "/srv/history"' })
    assert.match(await ran.innerText(), /approved[^]*\ntidied$/)
    await ran.locator('a').click()
    assert.equal(await page.locator('#output').innerText(), 'tidied\n')
    assert.equal(await page.locator('#complete').isVisible(), false)
    await page.locator('#state summary').click()
    assert.equal(await page.locator('#complete').innerText(), '{"output":"tidied\\n"}')
    await look(scene, page, 'a result')
  },

  'pages: taints are readable, and cleared on the page': async (scene) => {
    const page = await scene.login(scene.site, {})
    const base = page.url()
    const agent = scene.site.agent('taints')
    const request = await agent.submit('fetch', { url: 'https://example.org/page' })
    await open(scene, page, base, 'taints', request)
    await scene.site.approve(request.id)
    assert.equal((await agent.wait(request)).outcome, 'approved')
    await page.goto(new URL('workspaces', base).href)
    const card = page.locator('#ws-taints')
    assert.doesNotMatch(await card.innerText(), /^: /m)
    const taints = card.locator('.taints li')
    assert.match(await taints.first().innerText(), /All sessions[^]*read text that a stranger may have written/)
    await look(scene, page, 'taints')
    await taints.first().locator('button').click()
    await page.locator('#note', { hasText: 'Taints cleared' }).waitFor()
    await page.waitForLoadState()
    assert.doesNotMatch(await card.innerText(), /stranger/)
    const list = JSON.parse(await scene.site.operator('session', 'list', '--json'))
    assert.deepEqual(list.find((t) => t.workspace === 'taints').taints, [])
  },

  'pages: no menu numbers': async (scene) => {
    const page = await scene.login(scene.site)
    const agent = scene.site.agent('work')
    const list = page.url()
    const question = await agent.submit('', {}, { type: 'question', title: 'Red or blue?', options: ['red', 'blue'] })
    await open(scene, page, list, 'work', question)
    assert.equal(await page.locator('#option-2').innerText(), 'blue')
    const mail = await agent.submit('send_mail', { to: 'bob@example.org', subject: 'Numbers', body: '…' })
    await open(scene, page, list, 'work', mail)
    await page.locator('#why summary').click()
    const why = await page.locator('#why').innerText()
    assert.match(why, /is not possible here/)
    assert.doesNotMatch(why, /\b[1-6]( and [1-6])? (is|are) not possible/)
    for (const request of [question, mail]) await agent.cancel(request)
  },

  'pages: what goes wrong after an approval is told, and a pause once': async (scene) => {
    const page = await scene.login(scene.paused, {})
    const list = page.url()
    const plain = await scene.newContext({ javaScriptEnabled: false })
    await plain.context().addCookies(await page.context().cookies())
    const agent = scene.paused.agent('work')
    const request = await agent.submit('build', { branch: '<b>main</b>' })
    await open(scene, page, list, 'work', request)
    await scene.paused.operator('pause', 'work')
    await page.locator('#code-1').click()
    const note = page.locator('#note')
    await note.locator('[role=alert]', { hasText: /waits for the end of a pause.*<b>main<.*it runs after resume, or expires at/s }).waitFor()
    await page.waitForLoadState()
    await look(scene, page, 'an approval in a pause')
    const other = await scene.tab(page.context())
    await other.goto(new URL(`r/work/${request.id}`, list).href)
    assert.match(await other.locator('#result').innerText(), /Approved by .* it runs after resume, or expires at/)
    await page.evaluate(() => { globalThis.here = true })
    await scene.paused.operator('resume', 'work')
    await note.locator('[role=alert]', { hasText: /Approved, but it failed: run the build.*<b>main</ }).waitFor()
    assert.ok(await page.evaluate(() => globalThis.here), 'the page was loaded again')
    assert.doesNotMatch(await note.innerText(), /runs after resume|will not start/)
    assert.match(await page.evaluate('streamURL()'), /told=failed/, 'a new stream would tell it again')
    await look(scene, page, 'a failure after an approval')
    await plain.goto(page.url())
    assert.match(await plain.locator('#note').innerText(), /Approved, but it failed: run the build/)
    await other.locator('#state[data-state="settled:failed"]').waitFor()
    await other.close()
    await page.locator('#decided').click()
    await page.locator('#state[data-state="settled:failed"]').waitFor()
    await pausedBanner(scene)
  },

  'pages: an address that does not exist': async (scene) => {
    const page = await scene.login(scene.site, {})
    const list = page.url()
    for (const path of ['nothing', 'r/work/0123456789abcdef0123456789abcdef', 'r/work', '/nothing']) {
      const response = await page.goto(new URL(path, list).href)
      assert.equal(response.status(), 404, path)
      assert.match(await page.locator('main h1').innerText(), /not found/i, path)
      await scene.accessible(page, path)
      const link = page.locator('h1 ~ p a').first()
      assert.match(await link.innerText(), /list/, path)
      await link.click()
      await page.waitForURL(list)
    }
    scene.ignoreErrors(/404/)
  },

  'pages: a phone cuts no link of the navigation, and no choice of the filter': async (scene) => {
    const page = await scene.login(scene.site, PHONE)
    const agent = scene.site.agent('work')
    const list = page.url()
    const requests = []
    for (const name of ['one', 'two', 'three', 'four']) requests.push(await agent.submit('tidy', { folder: `/srv/phone-${name}` }))
    for (const lang of ['en', 'it']) {
      await page.goto(new URL('help', list).href)
      await page.locator('#lang').selectOption(lang)
      await page.locator('#save').click()
      await page.locator(`html[lang=${lang}]`).waitFor()
      await page.goto(list)
      const links = await page.locator('nav a').evaluateAll((all) => all.map((a) => {
        const { left, right } = a.getBoundingClientRect()
        return { text: a.textContent, left, right, cut: a.closest('ul').scrollWidth > a.closest('ul').clientWidth }
      }))
      assert.equal(links.length, 7)
      for (const link of links) assert.ok(link.left >= 0 && link.right <= PHONE.viewport.width && !link.cut, JSON.stringify(link))
      await page.locator('#filter').waitFor()
      const narrow = await page.locator('#filter select').evaluateAll((all) => all.filter((select) => {
        const given = select.clientWidth
        select.style.width = 'auto'
        const needed = select.clientWidth
        select.style.width = ''
        return needed > given + 1
      }).map((select) => select.id))
      assert.deepEqual(narrow, [], `choices of the filter that are cut, in ${lang}`)
      await look(scene, page, `the navigation in ${lang}`)
    }
    for (const request of requests) await agent.cancel(request)
  },

  'pages: help says what notifications bring, and how to turn them off': async (scene) => {
    const page = await scene.login(scene.site, {})
    await page.goto(new URL('help', page.url()).href)
    await page.locator('#push-button[data-state=off]').waitFor()
    const section = page.locator('#push')
    assert.equal(await css(section, 'content', '::after'), 'none', 'the section shows its key')
    const text = await section.innerText()
    for (const says of [/without an open page/i, /question, the tool, the target and the workspace/, /own words/, /no text of an agent/, /turn (them|it) off/i]) assert.match(text, says)
    await page.addInitScript(() => {
      const registration = { pushManager: { getSubscription: async () => ({ endpoint: 'https://push.example' }) } }
      navigator.serviceWorker.register = async () => registration
      try { localStorage.setItem('permesso-notify', 'on') } catch {}
    })
    for (const state of ['off', 'on']) {
      if (state === 'on') await page.reload()
      await page.locator(`#push-button[data-state=${state}]`).waitFor()
      const [open, closed] = await Promise.all(['#notify-button', '#push-button'].map((button) => page.locator(button).innerText()))
      assert.match(open, state === 'on' ? /^Stop .* while a page is open$/ : /^Notify .* while a page is open$/)
      assert.match(closed, state === 'on' ? /^Stop .* without an open page$/ : /^Notify .* without an open page$/)
      await look(scene, page, `notifications, ${state}`)
    }
  },

  'pages: a form is sent once': async (scene) => {
    const page = await scene.login(scene.site, {})
    const agent = scene.site.agent('work')
    const request = await agent.submit('tidy', { folder: '/srv/twice' })
    await open(scene, page, page.url(), 'work', request)
    let posts = 0
    await page.route('**/decide', async (route) => {
      posts++
      await page.waitForTimeout(500) // a slow daemon
      await route.continue().catch(() => {}) // a second one would have taken its place
    })
    await page.evaluate(() => {
      for (const id of ['code-1', 'code-1', 'code-3']) document.getElementById(id).click()
    })
    await page.locator('#note').waitFor()
    assert.equal(posts, 1)
    assert.match(await page.locator('#note').innerText(), /^Approved/)
    assert.equal((await agent.wait(request)).outcome, 'approved')
  },

  'pages: a screen reader hears what was decided, here and elsewhere': async (scene) => {
    const page = await scene.login(scene.site, {})
    const agent = scene.site.agent('work')
    const list = page.url()
    const [one, two] = [await agent.submit('tidy', { folder: '/srv/hear' }), await agent.submit('tidy', { folder: '/srv/elsewhere' })]
    await open(scene, page, list, 'work', two)
    assert.notEqual(await css(page.locator('#live'), 'display'), 'none', 'an empty live region must be there before its text')
    await open(scene, page, list, 'work', one)
    await page.locator('#code-3').click()
    await page.locator('#note').waitFor()
    await page.waitForLoadState()
    assert.equal(await page.locator('#live').textContent(), await page.locator('#note [role=status]').textContent())
    await open(scene, page, list, 'work', two)
    await page.locator('#code-1').focus()
    await scene.site.operator('deny', two.id)
    await page.locator('#news', { hasText: /denied/i }).waitFor()
    assert.match(await page.locator('#live').textContent(), /This request has changed.*denied/i)
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main', 'the focus went with the button')
  },

  'pages: a button that has just appeared takes no click': async (scene) => {
    const page = await scene.login(scene.site, {})
    const agent = scene.site.agent('work')
    const list = page.url()
    const request = await agent.submit('fetch', { url: 'https://example.org/undo' })
    await open(scene, page, list, 'work', request)
    for (const id of ['code-1', 'code-3', 'code-6', 'code-ask']) await takesNoEarlyClick(page, `#${id}`)
    await scene.site.approve(request.id, '--always') // Undo stands where the decision was
    await page.locator('#state[data-state="settled:approved"] #undo').waitFor()
    for (const button of ['#state #undo button', '#news a']) await takesNoEarlyClick(page, button)
    await page.locator('#state #undo button').click()
    await page.locator('#note').waitFor()
  },

  'pages: irreversible is not green, and keys are on the buttons': async (scene) => {
    const page = await scene.login(scene.site, {})
    const agent = scene.site.agent('work')
    const list = page.url()
    const isGreen = async (selector) => {
      const [r, g, b] = (await css(page.locator(selector), 'background-color')).match(/\d+/g).map(Number)
      return g > r && g > b
    }
    const mail = await agent.submit('send_mail', { to: 'bob@example.org', subject: 'Colors', body: '…' })
    const tidy = await agent.submit('tidy', { folder: '/srv/colors' })
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme })
      await open(scene, page, list, 'work', tidy)
      assert.ok(await isGreen('#code-1'), `reversible, ${colorScheme}`)
      await open(scene, page, list, 'work', mail)
      assert.ok(!await isGreen('#code-1'), `irreversible, ${colorScheme}`)
      for (const [selector, key] of [['#code-1', 'a'], ['#code-3', 'd'], ['#next', 'n'], ['#to-help', '?']]) {
        assert.equal((await css(page.locator(selector), 'content', '::after')).split('/')[0].trim(), `"${key}"`, selector)
      }
      await page.locator('#code-1').click()
      await page.locator('#sure').waitFor()
      await page.waitForLoadState()
      assert.ok(!await isGreen('#sure'), `the confirmation, ${colorScheme}`)
      await clickTooEarly(page, '#sure')
    }
    for (const request of [mail, tidy]) await agent.cancel(request)
  },
}

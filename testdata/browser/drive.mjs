// Runs scenarios in one Chromium: drive.mjs, with the plan in $PLAN. See README.

import { createRequire } from 'node:module'
import { join } from 'node:path'
import { Gate } from './gate.mjs'
import { Scene } from './scene.mjs'

const plan = JSON.parse(process.env.PLAN)
const require = createRequire(join(plan.modules, 'package.json'))
const { chromium } = require('playwright-core')
const { chromiumSwitches } = require(join(plan.modules, 'node_modules/playwright-core/lib/server/chromium/chromiumSwitches.js'))

const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--process-per-site',
]
// Parts of Chromium that no scenario uses: a process in reserve for the next page, and toolbars that a window without a
// screen draws, each in a process. Only the last switch counts, so it begins with what Playwright turns off.
const UNUSED = 'SpareRendererForSitePerProcess,PreloadTopChromeWebUI,WebUIReloadButton,WebUIToolbarWebView,WebUIOmniboxPopup,WebUIOmniboxFullPopup,WebUIOmniboxAimPopup'
FLAGS.push(`${chromiumSwitches().find((one) => one.startsWith('--disable-features='))},${UNUSED}`)
const PARALLEL = 4 // scenarios: most share a browser context, which has six connections to a daemon, and each page uses one
const TIMEOUT = 120_000

// The parent process holds our standard input open. If it ends, end too, with the browser.
process.stdin.on('end', () => process.exit(1)).resume()

const browser = await chromium.launch({ executablePath: plan.chromium, args: FLAGS })
const gates = Object.fromEntries(Object.entries(plan.houses).map(([name, g]) => [name, new Gate(g)]))
const axe = require('axe-core').source

/** Runs one scenario and prints its result as a line of JSON. */
async function run(name, act) {
  const began = performance.now()
  const scene = new Scene({ name, browser, gates, axe, plan, timeout: TIMEOUT })
  let error = ''
  try {
    await act(scene)
    scene.checkErrors()
  } catch (why) {
    error = `${why?.stack ?? why}\n${await scene.evidence()}`
  }
  await scene.end()
  process.stdout.write(JSON.stringify({ name, error, notes: scene.notes, took: Math.round(performance.now() - began) }) + '\n')
}

const todo = []
for (const file of plan.scenarios) {
  const { scenarios } = await import(`./${file}`)
  todo.push(...Object.entries(scenarios).filter(([name]) => !plan.only || name.includes(plan.only)))
}
await Promise.all(Array.from({ length: PARALLEL }, async () => {
  for (let next = todo.shift(); next; next = todo.shift()) await run(...next)
}))
await browser.close()
process.exit(0)

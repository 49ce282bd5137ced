// Plays scenarios in one Chromium: drive.mjs, with the plan in $PLAN. See README.

import { createRequire } from 'node:module'
import { join } from 'node:path'
import { House } from './house.mjs'
import { Scene } from './scene.mjs'

const plan = JSON.parse(process.env.PLAN)
const require = createRequire(join(plan.modules, 'package.json'))
const { chromium } = require('playwright-core')

const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--process-per-site',
]
const TOGETHER = 4 // scenarios at once: most share a browser, which has six lines to a gate, and each open page holds one
const PATIENCE = 60_000

// Whoever started us holds our standard input open. When they are gone, so are we, and the browser.
process.stdin.on('end', () => process.exit(1)).resume()

const browser = await chromium.launch({ executablePath: plan.chromium, args: FLAGS })
const houses = Object.fromEntries(Object.entries(plan.houses).map(([name, h]) => [name, new House(h)]))
const axe = require('axe-core').source

/** Plays one, and says what came of it on a line of its own. */
async function play(name, act) {
  const began = performance.now()
  const scene = new Scene({ name, browser, houses, axe, plan, patience: PATIENCE })
  let error = ''
  try {
    await act(scene)
    scene.judge()
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
await Promise.all(Array.from({ length: TOGETHER }, async () => {
  for (let next = todo.shift(); next; next = todo.shift()) await play(...next)
}))
await browser.close()
process.exit(0)

// Preloaded into a service: at SIGUSR2 it collects garbage and prints the memory in use, in bytes.
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc")
let count = 0
process.on("SIGUSR2", () => {
  collect()
  collect()
  const { arrayBuffers, external, heapUsed, rss } = process.memoryUsage()
  console.error(`memory ${++count} ${heapUsed + external + arrayBuffers} ${rss}`)
})

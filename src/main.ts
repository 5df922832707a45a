#!/usr/bin/env node
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, Effect, Exit, Runtime } from "effect"
import { Command } from "effect/cli"
import { db } from "./cli/db.ts"
import { explainFailure } from "./cli/explainFailure.ts"
import { keys } from "./cli/keys.ts"
import { node } from "./cli/node.ts"
import { nodes } from "./cli/nodes.ts"
import { serve } from "./cli/serve.ts"
import { ShortMistakes } from "./cli/shortMistakes.ts"
import { version } from "./version.ts"

/** A service that was asked to stop has done its work: 0, not the 130 of an interrupted command. */
const endOf: Runtime.Teardown = (exit, end) =>
  Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause) ? end(0) : Runtime.defaultTeardown(exit, end)

const muster = Command.make("muster").pipe(
  Command.withDescription("Control plane for game servers"),
  Command.withSubcommands([serve, node, nodes, keys, db])
)

Command.run(muster, { version }).pipe(
  explainFailure,
  Effect.provide([NodeServices.layer, ShortMistakes]),
  NodeRuntime.runMain({ disableErrorReporting: true, teardown: endOf })
)

import { Effect, Option } from "effect"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import { applyConfigs } from "../configPatch/ConfigPatcher.ts"
import { contextOf } from "../configPatch/placeholders.ts"
import { readFileInside, removeFileInside, writeFileInside } from "../disk/safePath.ts"
import { InstallFailed } from "../files/InstallFailed.ts"

const MOST_BYTES = 10 * 1024 * 1024

const failed = (reason: string) => new InstallFailed({ reason: `warm-up: ${reason}` })

/** What a file was, and how it becomes that again. */
const remember = Effect.fnUntraced(function* (folder: string, file: string) {
  const before = yield* readFileInside(folder, file, MOST_BYTES)
  const restore: Effect.Effect<void, { readonly _tag: string }> = Option.isNone(before)
    ? // Never through a link that the software made in place of a folder.
      removeFileInside(folder, file)
    : writeFileInside(folder, file, before.value)
  return restore
})

/**
 * Applies the config patches of a server to a folder while `use` lasts, then takes them back: a base folder is
 * shared by servers with other patches, and must not carry this one's.
 */
export const withPatches = Effect.fnUntraced(function* (
  folder: string,
  spec: ServerSpec,
  use: Effect.Effect<void, InstallFailed>
): Effect.fn.Return<void, InstallFailed> {
  const context = yield* Effect.mapError(Effect.fromResult(contextOf(spec)), (error) => failed(error.message))
  const { configs } = spec.definition
  const restores = yield* Effect.forEach(Object.keys(configs), (file) =>
    Effect.mapError(remember(folder, file), (error) => failed(`${file} cannot be read: ${error._tag}`))
  )
  const restore = Effect.forEach(restores, (effect) =>
    Effect.catch(effect, (error) => Effect.logWarning(`a patched file stays in the base: ${error._tag}`))
  )
  yield* applyConfigs(folder, configs, context).pipe(
    Effect.mapError((error) => failed(error.message)),
    Effect.andThen(use),
    Effect.ensuring(restore)
  )
})

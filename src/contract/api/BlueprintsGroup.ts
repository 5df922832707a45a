import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { BlueprintView, DefinitionWarning, MixinView, SourceView } from "../domain/Blueprint.ts"
import { NotFound, SourceFailed } from "../domain/errors.ts"
import { Paginated } from "../domain/Pagination.ts"
import { Software } from "../domain/Software.ts"
import { blueprintExample } from "./examples.ts"
import { Authorization, route } from "./middleware.ts"
import { text } from "./query.ts"

/** Blueprints, mixins, software and their reload (spec 4.1). */
export class BlueprintsGroup extends HttpApiGroup.make("blueprints")
  .add(
    HttpApiEndpoint.get("list", "/blueprints", {
      query: {
        page: text("Page, from 1 on; anything below or no number is 1."),
        limit: text(
          "Blueprints of a page, at most 1,000; default 50, and 20 for a value below 1 or not a number."
        ),
        per_page: text("The same as `limit`, which takes precedence."),
        meta: text("Reserved; changes nothing.")
      },
      success: Paginated("BlueprintPage", BlueprintView.annotate({ examples: [blueprintExample] }))
    }).annotateMerge(route("List blueprints, paginated", { right: "read", hasQueryFallbacks: true })),
    HttpApiEndpoint.post("reload", "/blueprints/reload", {
      success: HttpApiSchema.Empty(200),
      error: SourceFailed
    }).annotateMerge(
      route("Sync the sources of blueprints and reload them, all or nothing", {
        audited: "blueprints.reload"
      })
    ),
    HttpApiEndpoint.get("get", "/blueprints/:blueprint", {
      params: { blueprint: Schema.String.annotate({ description: "The id of the blueprint." }) },
      success: BlueprintView,
      error: NotFound
    }).annotateMerge(route("One blueprint", { right: "read" })),
    HttpApiEndpoint.get("mixins", "/mixins", { success: Schema.Array(MixinView) }).annotateMerge(
      route("List mixins", { right: "read" })
    ),
    HttpApiEndpoint.get("mixin", "/mixins/:mixin", {
      params: { mixin: Schema.String.annotate({ description: "The id of the mixin." }) },
      success: MixinView,
      error: NotFound
    }).annotateMerge(route("One mixin", { right: "read" })),
    HttpApiEndpoint.get("softwareList", "/software", { success: Schema.Array(Software) }).annotateMerge(
      route("List software", { right: "read" })
    ),
    HttpApiEndpoint.post("softwareReload", "/software/reload", {
      success: HttpApiSchema.Empty(200),
      error: SourceFailed
    }).annotateMerge(
      route("Sync the sources of software and reload it, all or nothing", { audited: "software.reload" })
    ),
    HttpApiEndpoint.get("software", "/software/:software", {
      params: { software: Schema.String.annotate({ description: "The id of the software." }) },
      success: Software,
      error: NotFound
    }).annotateMerge(route("One software definition", { right: "read" })),
    HttpApiEndpoint.get("warnings", "/definitions/warnings", {
      success: Schema.Array(DefinitionWarning)
    }).annotateMerge(
      route("Warnings about the definitions, and definitions that were left out", { right: "read" })
    ),
    HttpApiEndpoint.get("sources", "/definitions/sources", {
      success: Schema.Array(SourceView)
    }).annotateMerge(
      route("Git repositories that definitions are synced from, and the result of the last sync", {
        right: "read"
      })
    )
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Blueprints and software" })) {}

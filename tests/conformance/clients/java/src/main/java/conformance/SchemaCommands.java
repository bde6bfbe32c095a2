package conformance;

import static conformance.Agent.text;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import danube.Danube.SchemaReference;
import danube_schema.SchemaRegistryOuterClass.CheckCompatibilityResponse;
import danube_schema.SchemaRegistryOuterClass.GetSchemaResponse;
import danube_schema.SchemaRegistryOuterClass.GetTopicSchemaConfigResponse;

/** The schema commands of the agent protocol. */
final class SchemaCommands {
    private static final Gson JSON = new Gson();

    private final Schemas schemas;

    SchemaCommands(Schemas schemas) {
        this.schemas = schemas;
    }

    /** Which version of a subject a producer writes: a pinned one, at least some, or the latest. */
    static SchemaReference reference(JsonObject choice) {
        SchemaReference.Builder reference = SchemaReference.newBuilder().setSubject(text(choice, "subject"));
        if (choice.has("version")) {
            reference.setPinnedVersion(choice.get("version").getAsInt());
        } else if (choice.has("min_version")) {
            reference.setMinVersion(choice.get("min_version").getAsInt());
        } else {
            reference.setUseLatest(true);
        }
        return reference.build();
    }

    JsonObject perform(JsonObject command) {
        String subject = text(command, "subject");
        String topic = text(command, "topic");
        return switch (text(command, "do")) {
            case "register_schema" -> {
                JsonObject answer = new JsonObject();
                answer.addProperty(
                        "schema_id", schemas.register(subject, text(command, "type"), text(command, "definition")));
                yield answer;
            }
            case "get_schema" -> schema(
                    command.has("subject")
                            ? schemas.latest(subject)
                            : schemas.byId(command.get("schema_id").getAsLong(), version(command)));
            case "schema_versions" -> {
                JsonObject answer = new JsonObject();
                answer.add("versions", JSON.toJsonTree(schemas.versions(subject)));
                yield answer;
            }
            case "check_schema" -> verdict(schemas.check(
                    subject, text(command, "type"), text(command, "definition"), textOrNull(command, "mode")));
            case "set_schema_mode" -> outcome(schemas.setMode(subject, text(command, "mode")));
            case "delete_schema" -> outcome(schemas.delete(subject, version(command)));
            case "configure_topic" -> outcome(schemas.configureTopic(
                    topic, subject, text(command, "policy"), command.get("payloads").getAsBoolean()));
            case "set_topic_policy" -> outcome(schemas.setTopicPolicy(
                    topic, text(command, "policy"), command.get("payloads").getAsBoolean()));
            case "topic_schema" -> config(schemas.ofTopic(topic));
            default -> throw new IllegalArgumentException("no such verb: " + text(command, "do"));
        };
    }

    private static JsonObject schema(GetSchemaResponse found) {
        JsonObject answer = new JsonObject();
        answer.addProperty("schema_id", found.getSchemaId());
        answer.addProperty("subject", found.getSubject());
        answer.addProperty("version", found.getVersion());
        answer.addProperty("schema_type", found.getSchemaType());
        answer.addProperty("schema_definition", found.getSchemaDefinition().toStringUtf8());
        answer.addProperty("fingerprint", found.getFingerprint());
        return answer;
    }

    private static JsonObject verdict(CheckCompatibilityResponse checked) {
        JsonObject answer = new JsonObject();
        answer.addProperty("is_compatible", checked.getIsCompatible());
        answer.add("errors", JSON.toJsonTree(checked.getErrorsList().toArray()));
        return answer;
    }

    private static JsonObject config(GetTopicSchemaConfigResponse found) {
        JsonObject answer = new JsonObject();
        answer.addProperty("subject", found.getSchemaSubject());
        answer.addProperty("policy", found.getValidationPolicy());
        answer.addProperty("payloads", found.getEnablePayloadValidation());
        answer.addProperty("schema_id", found.getSchemaId());
        return answer;
    }

    private static JsonObject outcome(Schemas.Outcome done) {
        return JSON.toJsonTree(done).getAsJsonObject();
    }

    private static Integer version(JsonObject command) {
        JsonElement version = command.get("version");
        return version == null || version.isJsonNull() ? null : Integer.valueOf(version.getAsInt());
    }

    private static String textOrNull(JsonObject command, String field) {
        JsonElement value = command.get(field);
        return value == null || value.isJsonNull() ? null : value.getAsString();
    }
}

package conformance;

import com.google.protobuf.ByteString;
import danube.Danube.SchemaReference;
import danube_schema.SchemaRegistryGrpc;
import danube_schema.SchemaRegistryOuterClass.CheckCompatibilityRequest;
import danube_schema.SchemaRegistryOuterClass.CheckCompatibilityResponse;
import danube_schema.SchemaRegistryOuterClass.ConfigureTopicSchemaRequest;
import danube_schema.SchemaRegistryOuterClass.DeleteSchemaVersionRequest;
import danube_schema.SchemaRegistryOuterClass.GetLatestSchemaRequest;
import danube_schema.SchemaRegistryOuterClass.GetSchemaRequest;
import danube_schema.SchemaRegistryOuterClass.GetSchemaResponse;
import danube_schema.SchemaRegistryOuterClass.GetTopicSchemaConfigRequest;
import danube_schema.SchemaRegistryOuterClass.GetTopicSchemaConfigResponse;
import danube_schema.SchemaRegistryOuterClass.ListVersionsRequest;
import danube_schema.SchemaRegistryOuterClass.RegisterSchemaRequest;
import danube_schema.SchemaRegistryOuterClass.SchemaVersionInfo;
import danube_schema.SchemaRegistryOuterClass.SetCompatibilityModeRequest;
import danube_schema.SchemaRegistryOuterClass.UpdateTopicValidationPolicyRequest;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.function.Function;

/** Asks the registry, always at the service URL; the only client that refuses answers with words it does not know. */
final class Schemas {
    private static final Set<String> TYPES = Set.of("avro", "json_schema", "protobuf", "bytes", "string", "number");
    private static final Set<String> MODES = Set.of("none", "backward", "forward", "full");
    private static final Set<String> POLICIES = Set.of("none", "warn", "enforce");

    /** What a producer with a schema writes on every message. */
    record Stamp(long id, int version) {}

    /** What an operation answers that changes something. */
    record Outcome(boolean success, String message) {}

    /** Hides the broker's status behind a sentence of the client's; the status is its cause. */
    private static final class Failure extends RuntimeException {
        Failure(String words, Throwable cause) {
            super(words, cause);
        }
    }

    private final Client client;

    Schemas(Client client) {
        this.client = client;
    }

    /** The id and version to stamp; a version there is not fails here, not at the broker. */
    Stamp resolve(SchemaReference reference) {
        String subject = reference.getSubject();
        GetSchemaResponse found = latest(subject);
        switch (reference.getVersionRefCase()) {
            case PINNED_VERSION -> {
                int pinned = reference.getPinnedVersion();
                if (pinned > found.getVersion()) {
                    throw new IllegalArgumentException(subject + " has no version " + pinned);
                }
                if (pinned < found.getVersion()) {
                    found = byId(found.getSchemaId(), pinned);
                }
            }
            case MIN_VERSION -> {
                if (reference.getMinVersion() > found.getVersion()) {
                    throw new IllegalArgumentException(
                            subject + " has only version " + found.getVersion() + ", below " + reference.getMinVersion());
                }
            }
            default -> { }
        }
        return new Stamp(found.getSchemaId(), found.getVersion());
    }

    long register(String subject, String type, String definition) {
        RegisterSchemaRequest request = RegisterSchemaRequest.newBuilder()
                .setSubject(subject).setSchemaType(known(TYPES, type)).setSchemaDefinition(required(definition)).build();
        return ask("register a schema of " + subject, stub -> stub.registerSchema(request)).getSchemaId();
    }

    GetSchemaResponse latest(String subject) {
        GetLatestSchemaRequest request = GetLatestSchemaRequest.newBuilder().setSubject(subject).build();
        return understood(ask("fetch the latest schema of " + subject, stub -> stub.getLatestSchema(request)));
    }

    /** One version, or the latest if the version is null. */
    GetSchemaResponse byId(long id, Integer version) {
        GetSchemaRequest.Builder request = GetSchemaRequest.newBuilder().setSchemaId(id);
        if (version != null) {
            request.setVersion(version);
        }
        return understood(ask("fetch schema " + id, stub -> stub.getSchema(request.build())));
    }

    List<Integer> versions(String subject) {
        ListVersionsRequest request = ListVersionsRequest.newBuilder().setSubject(subject).build();
        return ask("list the versions of " + subject, stub -> stub.listVersions(request))
                .getVersionsList().stream().map(SchemaVersionInfo::getVersion).toList();
    }

    /** Whether readers stay safe, by the given mode, or by the subject's own if that is null. */
    CheckCompatibilityResponse check(String subject, String type, String definition, String mode) {
        CheckCompatibilityRequest.Builder request = CheckCompatibilityRequest.newBuilder()
                .setSubject(subject).setSchemaType(known(TYPES, type)).setNewSchemaDefinition(required(definition));
        if (mode != null) {
            request.setCompatibilityMode(known(MODES, mode));
        }
        return ask("check a schema of " + subject, stub -> stub.checkCompatibility(request.build()));
    }

    Outcome setMode(String subject, String mode) {
        SetCompatibilityModeRequest request = SetCompatibilityModeRequest.newBuilder()
                .setSubject(subject).setCompatibilityMode(known(MODES, mode)).build();
        var done = ask("set the mode of " + subject, stub -> stub.setCompatibilityMode(request));
        return new Outcome(done.getSuccess(), done.getMessage());
    }

    Outcome delete(String subject, int version) {
        DeleteSchemaVersionRequest request =
                DeleteSchemaVersionRequest.newBuilder().setSubject(subject).setVersion(version).build();
        var done = ask("delete a version of " + subject, stub -> stub.deleteSchemaVersion(request));
        return new Outcome(done.getSuccess(), done.getMessage());
    }

    Outcome configureTopic(String topic, String subject, String policy, boolean payloads) {
        ConfigureTopicSchemaRequest request = ConfigureTopicSchemaRequest.newBuilder()
                .setTopicName(topic)
                .setSchemaSubject(subject)
                .setValidationPolicy(known(POLICIES, policy))
                .setEnablePayloadValidation(payloads)
                .build();
        var done = ask("configure the schema of " + topic, stub -> stub.configureTopicSchema(request));
        return new Outcome(done.getSuccess(), done.getMessage());
    }

    Outcome setTopicPolicy(String topic, String policy, boolean payloads) {
        UpdateTopicValidationPolicyRequest request = UpdateTopicValidationPolicyRequest.newBuilder()
                .setTopicName(topic)
                .setValidationPolicy(known(POLICIES, policy))
                .setEnablePayloadValidation(payloads)
                .build();
        var done = ask("set the policy of " + topic, stub -> stub.updateTopicValidationPolicy(request));
        return new Outcome(done.getSuccess(), done.getMessage());
    }

    GetTopicSchemaConfigResponse ofTopic(String topic) {
        GetTopicSchemaConfigRequest request = GetTopicSchemaConfigRequest.newBuilder().setTopicName(topic).build();
        var config = ask("fetch the schema of " + topic, stub -> stub.getTopicSchemaConfig(request));
        known(POLICIES, config.getValidationPolicy());
        return config;
    }

    private <T> T ask(String what, Function<SchemaRegistryGrpc.SchemaRegistryBlockingStub, T> call) {
        try {
            return call.apply(SchemaRegistryGrpc.newBlockingStub(client.channel(client.serviceAddress())));
        } catch (RuntimeException error) {
            throw new Failure("failed to " + what, error);
        }
    }

    private static GetSchemaResponse understood(GetSchemaResponse schema) {
        known(TYPES, schema.getSchemaType());
        known(MODES, schema.getCompatibilityMode());
        return schema;
    }

    /** The wire form of a word: this client has an enumeration where the others have text. */
    private static String known(Set<String> words, String word) {
        String lower = word.toLowerCase(Locale.ROOT);
        if (!words.contains(lower)) {
            throw new IllegalArgumentException("'" + word + "' is none of " + words);
        }
        return lower;
    }

    private static ByteString required(String definition) {
        if (definition.isEmpty()) {
            throw new IllegalArgumentException("a schema needs a definition");
        }
        return ByteString.copyFromUtf8(definition);
    }
}

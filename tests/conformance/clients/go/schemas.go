package main

import (
	"context"
	"errors"
	"fmt"

	pb "conformance/danubepb"
	"conformance/schemapb"
)

const creator = "danube-go"

// schemaCommand is what the schema commands bring beyond `subject`, `topic` and `type`.
type schemaCommand struct {
	Subject    string  `json:"subject"`
	Definition string  `json:"definition"`
	SchemaID   uint64  `json:"schema_id"`
	Version    *uint32 `json:"version"`
	Mode       *string `json:"mode"`
	Policy     string  `json:"policy"`
	Payloads   bool    `json:"payloads"`
}

// schemaChoice says which version of a subject a producer writes: a pinned one, at least some, or the latest.
type schemaChoice struct {
	Subject    string  `json:"subject"`
	Version    *uint32 `json:"version"`
	MinVersion *uint32 `json:"min_version"`
}

func (s *schemaChoice) reference() *pb.SchemaReference {
	switch {
	case s == nil:
		return nil
	case s.Version != nil:
		return &pb.SchemaReference{Subject: s.Subject, VersionRef: &pb.SchemaReference_PinnedVersion{PinnedVersion: *s.Version}}
	case s.MinVersion != nil:
		return &pb.SchemaReference{Subject: s.Subject, VersionRef: &pb.SchemaReference_MinVersion{MinVersion: *s.MinVersion}}
	default:
		return &pb.SchemaReference{Subject: s.Subject, VersionRef: &pb.SchemaReference_UseLatest{UseLatest: true}}
	}
}

// schemaStamp is written on every message of a producer that follows a schema; empty for all others.
type schemaStamp struct {
	id      *uint64
	version *uint32
}

// schemas asks the registry, always at the service URL and never through a topic's proxy.
type schemas struct {
	client *client
}

func (c *client) schemas() schemas {
	return schemas{client: c}
}

func (s schemas) registry() (schemapb.SchemaRegistryClient, error) {
	connection, err := s.client.connection(address{brokerURL: s.client.serviceURL, connectURL: s.client.serviceURL})
	if err != nil {
		return nil, err
	}
	return schemapb.NewSchemaRegistryClient(connection), nil
}

// resolve finds the id and version to stamp; a version there is not fails here, not at the broker.
func (s schemas) resolve(ctx context.Context, reference *pb.SchemaReference) (schemaStamp, error) {
	registry, err := s.registry()
	if err != nil {
		return schemaStamp{}, err
	}
	found, err := registry.GetLatestSchema(ctx, &schemapb.GetLatestSchemaRequest{Subject: reference.Subject})
	if err != nil {
		return schemaStamp{}, err
	}
	switch wanted := reference.VersionRef.(type) {
	case *pb.SchemaReference_PinnedVersion:
		if wanted.PinnedVersion > found.Version {
			return schemaStamp{}, fmt.Errorf("%s has no version %d", reference.Subject, wanted.PinnedVersion)
		}
		if wanted.PinnedVersion < found.Version {
			found, err = registry.GetSchema(ctx, &schemapb.GetSchemaRequest{SchemaId: found.SchemaId, Version: &wanted.PinnedVersion})
		}
	case *pb.SchemaReference_MinVersion:
		if wanted.MinVersion > found.Version {
			return schemaStamp{}, fmt.Errorf("%s has only version %d, below %d", reference.Subject, found.Version, wanted.MinVersion)
		}
	}
	if err != nil {
		return schemaStamp{}, err
	}
	return schemaStamp{id: &found.SchemaId, version: &found.Version}, nil
}

func (s schemas) perform(ctx context.Context, c *command) (map[string]any, error) {
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	switch c.Do {
	case "register_schema":
		return register(ctx, registry, c)
	case "get_schema":
		return get(ctx, registry, c)
	case "schema_versions":
		return versions(ctx, registry, c)
	case "check_schema":
		answer, err := registry.CheckCompatibility(ctx, &schemapb.CheckCompatibilityRequest{
			Subject:             c.Subject,
			NewSchemaDefinition: []byte(c.Definition),
			SchemaType:          c.Type,
			CompatibilityMode:   c.Mode,
		})
		return map[string]any{"is_compatible": answer.GetIsCompatible(), "errors": append([]string{}, answer.GetErrors()...)}, err
	case "set_schema_mode":
		answer, err := registry.SetCompatibilityMode(ctx, &schemapb.SetCompatibilityModeRequest{Subject: c.Subject, CompatibilityMode: *c.Mode})
		return outcome(answer), err
	case "delete_schema":
		answer, err := registry.DeleteSchemaVersion(ctx, &schemapb.DeleteSchemaVersionRequest{Subject: c.Subject, Version: *c.Version})
		return outcome(answer), err
	case "configure_topic":
		answer, err := registry.ConfigureTopicSchema(ctx, &schemapb.ConfigureTopicSchemaRequest{
			TopicName:               c.Topic,
			SchemaSubject:           c.Subject,
			ValidationPolicy:        c.Policy,
			EnablePayloadValidation: c.Payloads,
		})
		return outcome(answer), err
	case "set_topic_policy":
		answer, err := registry.UpdateTopicValidationPolicy(ctx, &schemapb.UpdateTopicValidationPolicyRequest{
			TopicName:               c.Topic,
			ValidationPolicy:        c.Policy,
			EnablePayloadValidation: c.Payloads,
		})
		return outcome(answer), err
	case "topic_schema":
		answer, err := registry.GetTopicSchemaConfig(ctx, &schemapb.GetTopicSchemaConfigRequest{TopicName: c.Topic})
		return map[string]any{
			"subject":   answer.GetSchemaSubject(),
			"policy":    answer.GetValidationPolicy(),
			"payloads":  answer.GetEnablePayloadValidation(),
			"schema_id": answer.GetSchemaId(),
		}, err
	}
	return nil, fmt.Errorf("no such verb: %s", c.Do)
}

func register(ctx context.Context, registry schemapb.SchemaRegistryClient, c *command) (map[string]any, error) {
	if c.Definition == "" {
		return nil, errors.New("a schema needs a definition")
	}
	answer, err := registry.RegisterSchema(ctx, &schemapb.RegisterSchemaRequest{
		Subject:          c.Subject,
		SchemaType:       c.Type,
		SchemaDefinition: []byte(c.Definition),
		CreatedBy:        creator,
	})
	return map[string]any{"schema_id": answer.GetSchemaId()}, err
}

func get(ctx context.Context, registry schemapb.SchemaRegistryClient, c *command) (map[string]any, error) {
	var found *schemapb.GetSchemaResponse
	var err error
	if c.Subject != "" {
		found, err = registry.GetLatestSchema(ctx, &schemapb.GetLatestSchemaRequest{Subject: c.Subject})
	} else {
		found, err = registry.GetSchema(ctx, &schemapb.GetSchemaRequest{SchemaId: c.SchemaID, Version: c.Version})
	}
	return map[string]any{
		"schema_id":         found.GetSchemaId(),
		"subject":           found.GetSubject(),
		"version":           found.GetVersion(),
		"schema_type":       found.GetSchemaType(),
		"schema_definition": string(found.GetSchemaDefinition()),
		"fingerprint":       found.GetFingerprint(),
	}, err
}

func versions(ctx context.Context, registry schemapb.SchemaRegistryClient, c *command) (map[string]any, error) {
	answer, err := registry.ListVersions(ctx, &schemapb.ListVersionsRequest{Subject: c.Subject})
	numbers := []uint32{}
	for _, each := range answer.GetVersions() {
		numbers = append(numbers, each.Version)
	}
	return map[string]any{"versions": numbers}, err
}

func outcome(answer interface {
	GetSuccess() bool
	GetMessage() string
}) map[string]any {
	return map[string]any{"success": answer.GetSuccess(), "message": answer.GetMessage()}
}

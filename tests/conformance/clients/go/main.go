// Drives a client that behaves as the Go client does, by JSON lines; the protocol is in ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"

	pb "conformance/danubepb"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const lineBytesMax = 32 << 20

type command struct {
	ID           int64         `json:"id"`
	Do           string        `json:"do"`
	Label        string        `json:"label"`
	Topic        string        `json:"topic"`
	Name         string        `json:"name"`
	Reliable     bool          `json:"reliable"`
	Partitions   int           `json:"partitions"`
	Messages     []payload     `json:"messages"`
	Subscription string        `json:"subscription"`
	Type         string        `json:"type"`
	KeyFilters   []string      `json:"key_filters"`
	AutoAck      bool          `json:"auto_ack"`
	Retries      int           `json:"retries"`
	Tag          int           `json:"tag"`
	DelayMs      *uint64       `json:"delay_ms"`
	Reason       *string       `json:"reason"`
	Schema       *schemaChoice `json:"schema"`
	schemaCommand
}

type payload struct {
	Payload    []byte            `json:"payload"`
	Attributes map[string]string `json:"attributes"`
	Key        *string           `json:"key"`
}

// event is a received message; encoding/json writes a []byte as base64.
type event struct {
	Consumer      string            `json:"consumer"`
	Tag           int               `json:"tag"`
	Topic         string            `json:"topic"`
	Offset        uint64            `json:"offset"`
	ProducerID    uint64            `json:"producer_id"`
	ProducerName  string            `json:"producer_name"`
	PublishTime   uint64            `json:"publish_time"`
	Payload       []byte            `json:"payload"`
	Attributes    map[string]string `json:"attributes"`
	Key           *string           `json:"key"`
	SchemaID      *uint64           `json:"schema_id"`
	SchemaVersion *uint32           `json:"schema_version"`
}

// nothing is what a command answers that has nothing to tell.
var nothing = map[string]any{}

// receiver is a consumer with the messages it has handed out, by tag, so that a later ack can name one.
type receiver struct {
	consumer *consumer
	mu       sync.Mutex
	messages []*pb.StreamMessage
}

type agent struct {
	client    *client
	mu        sync.Mutex
	producers map[string]*producer
	receivers map[string]*receiver
	out       *json.Encoder
	outMu     sync.Mutex
}

func main() {
	url := flag.String("broker-url", "", "where the broker is")
	flag.Parse()
	a := &agent{
		client:    newClient(*url),
		producers: map[string]*producer{},
		receivers: map[string]*receiver{},
		out:       json.NewEncoder(os.Stdout),
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var next command
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			fmt.Fprintln(os.Stderr, "not a command:", err)
			os.Exit(2)
		}
		go a.answer(&next)
	}
}

func (a *agent) answer(c *command) {
	outcome, err := a.perform(context.Background(), c)
	if err != nil {
		a.emit(map[string]any{"id": c.ID, "error": describe(err)})
	} else {
		a.emit(map[string]any{"id": c.ID, "ok": outcome})
	}
}

func (a *agent) perform(ctx context.Context, c *command) (map[string]any, error) {
	switch c.Do {
	case "producer":
		return nothing, a.createProducer(ctx, c)
	case "send":
		sender := find(a, a.producers, c.Label)
		for _, message := range c.Messages {
			if err := sender.send(ctx, message.Payload, message.Attributes, message.Key); err != nil {
				return nil, err
			}
		}
		return nothing, nil
	case "close_producer":
		find(a, a.producers, c.Label).close()
		return nothing, nil
	case "consumer":
		return nothing, a.subscribe(ctx, c)
	case "receive":
		go a.forward(ctx, c.Label, find(a, a.receivers, c.Label), c.AutoAck)
		return nothing, nil
	case "ack":
		from := find(a, a.receivers, c.Label)
		return nothing, from.consumer.ack(ctx, from.message(c.Tag))
	case "nack":
		from := find(a, a.receivers, c.Label)
		return nothing, from.consumer.nack(ctx, from.message(c.Tag), c.DelayMs, c.Reason)
	case "close_consumer":
		find(a, a.receivers, c.Label).consumer.close()
		return nothing, nil
	}
	return a.client.schemas().perform(ctx, c)
}

func (a *agent) createProducer(ctx context.Context, c *command) error {
	strategy := pb.DispatchStrategy_NonReliable
	if c.Reliable {
		strategy = pb.DispatchStrategy_Reliable
	}
	made, err := newProducer(ctx, a.client, &pb.ProducerRequest{
		ProducerName:     c.Name,
		TopicName:        c.Topic,
		SchemaRef:        c.Schema.reference(),
		DispatchStrategy: strategy,
	}, c.Partitions, c.Retries)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.producers[c.Label] = made
	return nil
}

func (a *agent) subscribe(ctx context.Context, c *command) error {
	made, err := newConsumer(ctx, a.client, &pb.ConsumerRequest{
		TopicName:        c.Topic,
		ConsumerName:     c.Name,
		Subscription:     c.Subscription,
		SubscriptionType: pb.ConsumerRequest_SubscriptionType(pb.ConsumerRequest_SubscriptionType_value[c.Type]),
		KeyFilters:       c.KeyFilters,
	}, c.Retries)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.receivers[c.Label] = &receiver{consumer: made}
	return nil
}

func (a *agent) forward(ctx context.Context, label string, from *receiver, autoAck bool) {
	for message := range from.consumer.receive() {
		tag := from.remember(message)
		if autoAck {
			if err := from.consumer.ack(ctx, message); err != nil {
				a.emit(map[string]any{"ack_failed": map[string]any{"consumer": label, "error": describe(err)}})
			}
		}
		a.emit(map[string]any{"message": event{
			Consumer:      label,
			Tag:           tag,
			Topic:         message.GetMsgId().GetTopicName(),
			Offset:        message.GetMsgId().GetTopicOffset(),
			ProducerID:    message.GetMsgId().GetProducerId(),
			ProducerName:  message.ProducerName,
			PublishTime:   message.PublishTime,
			Payload:       append([]byte{}, message.Payload...),
			Attributes:    message.Attributes,
			Key:           message.RoutingKey,
			SchemaID:      message.SchemaId,
			SchemaVersion: message.SchemaVersion,
		}})
	}
	a.emit(map[string]any{"ended": map[string]any{"consumer": label}})
}

func (r *receiver) remember(message *pb.StreamMessage) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, message)
	return len(r.messages) - 1
}

func (r *receiver) message(tag int) *pb.StreamMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.messages[tag]
}

func (a *agent) emit(line any) {
	a.outMu.Lock()
	defer a.outMu.Unlock()
	_ = a.out.Encode(line)
}

func find[T any](a *agent, among map[string]T, label string) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	return among[label]
}

func describe(err error) map[string]string {
	code := ""
	if from, ok := status.FromError(err); ok && from.Code() != codes.Unknown {
		code = upperSnake(from.Code().String())
	}
	return map[string]string{"code": code, "text": err.Error()}
}

// upperSnake renders a status code's Go name the way the gRPC specification writes it.
func upperSnake(camel string) string {
	name := []rune{}
	for index, letter := range camel {
		if index > 0 && letter >= 'A' && letter <= 'Z' {
			name = append(name, '_')
		}
		if letter >= 'a' && letter <= 'z' {
			letter -= 'a' - 'A'
		}
		name = append(name, letter)
	}
	return string(name)
}

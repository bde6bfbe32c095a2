package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "conformance/danubepb"
)

// producer sends to one topic or, in turn or by key, to its partitions: one call in flight at a time.
type producer struct {
	mu         sync.Mutex
	partitions []*topicProducer
	next       int
}

type topicProducer struct {
	client    *client
	topic     string
	name      string
	strategy  pb.DispatchStrategy
	retries   int
	at        address
	stub      pb.ProducerServiceClient
	id        uint64
	requestID uint64
	closed    atomic.Bool
	stop      context.CancelFunc
}

func newProducer(ctx context.Context, c *client, topic, name string, strategy pb.DispatchStrategy, partitions, retries int) (*producer, error) {
	made := &producer{}
	if partitions == 0 {
		made.partitions = []*topicProducer{newTopicProducer(c, topic, name, strategy, retries)}
	}
	for n := range partitions {
		part := newTopicProducer(c, fmt.Sprintf("%s-part-%d", topic, n), fmt.Sprintf("%s-%d", name, n), strategy, retries)
		made.partitions = append(made.partitions, part)
	}
	failures := make(chan error, len(made.partitions))
	for _, part := range made.partitions {
		go func() { failures <- part.create(ctx) }()
	}
	var first error
	for range made.partitions {
		if err := <-failures; err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	return made, nil
}

func newTopicProducer(c *client, topic, name string, strategy pb.DispatchStrategy, retries int) *topicProducer {
	at := address{brokerURL: c.serviceURL, connectURL: c.serviceURL}
	return &topicProducer{client: c, topic: topic, name: name, strategy: strategy, retries: limit(retries), at: at}
}

func (p *producer) send(ctx context.Context, payload []byte, attributes map[string]string, key *string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	part := p.partitions[p.choose(key)]
	retries := 0
	for {
		err := part.send(ctx, payload, attributes, key)
		if err == nil || !retryable(err) {
			return err
		}
		if retries++; retries <= part.retries {
			time.Sleep(backoff(retries))
			continue
		}
		at, lookupErr := p.partitions[0].client.lookup(ctx, part.at.connectURL, part.topic)
		if lookupErr != nil {
			return err
		}
		part.at = at
		if err := part.create(ctx); err != nil {
			return err
		}
		retries = 0
	}
}

// choose picks a partition: by FNV-1a of the key, or the next in turn.
func (p *producer) choose(key *string) int {
	count := len(p.partitions)
	if key == nil {
		chosen := p.next
		p.next = (p.next + 1) % count
		return chosen
	}
	hash := uint64(0xcbf29ce484222325)
	for _, octet := range []byte(*key) {
		hash = (hash ^ uint64(octet)) * 0x100000001b3
	}
	return int(hash % uint64(count))
}

func (p *producer) close() {
	for _, part := range p.partitions {
		part.stop()
	}
}

func (t *topicProducer) create(ctx context.Context) error {
	retries := 0
	for {
		if at, err := t.client.lookup(ctx, t.at.connectURL, t.topic); err == nil {
			t.at = at
		}
		if retries > 0 {
			time.Sleep(backoff(retries))
		}
		err := t.tryCreate(ctx)
		if err == nil || !retryable(err) || retries == t.retries {
			return err
		}
		retries++
	}
}

func (t *topicProducer) tryCreate(ctx context.Context) error {
	connection, err := t.client.connection(t.at)
	if err != nil {
		return err
	}
	t.stub = pb.NewProducerServiceClient(connection)
	t.requestID++
	answer, err := t.stub.CreateProducer(t.at.outgoing(ctx), &pb.ProducerRequest{
		RequestId:          t.requestID,
		ProducerName:       t.name,
		TopicName:          t.topic,
		ProducerAccessMode: pb.ProducerAccessMode_Shared,
		DispatchStrategy:   t.strategy,
	})
	if err != nil {
		return err
	}
	t.id = answer.ProducerId
	if t.stop != nil {
		t.stop()
	}
	pinging, stop := context.WithCancel(context.Background())
	t.stop = stop
	go t.client.ping(pinging, t.at, pb.HealthCheckRequest_Producer, t.id, &t.closed)
	return nil
}

func (t *topicProducer) send(ctx context.Context, payload []byte, attributes map[string]string, key *string) error {
	t.requestID++
	_, err := t.stub.SendMessage(t.at.outgoing(ctx), &pb.StreamMessage{
		RequestId:    t.requestID,
		MsgId:        &pb.MsgID{ProducerId: t.id, TopicName: t.topic, BrokerAddr: t.at.brokerURL},
		Payload:      payload,
		PublishTime:  uint64(time.Now().UnixMilli()),
		ProducerName: t.name,
		Attributes:   attributes,
		RoutingKey:   key,
	})
	return err
}

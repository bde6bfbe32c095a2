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
	request   *pb.ProducerRequest
	retries   int
	at        address
	stub      pb.ProducerServiceClient
	id        uint64
	requestID uint64
	schema    schemaStamp
	closed    atomic.Bool
	stop      context.CancelFunc
}

func newProducer(ctx context.Context, c *client, wanted *pb.ProducerRequest, partitions, retries int) (*producer, error) {
	made := &producer{}
	if partitions == 0 {
		made.partitions = []*topicProducer{newTopicProducer(c, wanted, "", "", retries)}
	}
	for n := range partitions {
		part := newTopicProducer(c, wanted, fmt.Sprintf("-part-%d", n), fmt.Sprintf("-%d", n), retries)
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

func newTopicProducer(c *client, wanted *pb.ProducerRequest, topicSuffix, nameSuffix string, retries int) *topicProducer {
	request := &pb.ProducerRequest{
		ProducerName:       wanted.ProducerName + nameSuffix,
		TopicName:          wanted.TopicName + topicSuffix,
		SchemaRef:          wanted.SchemaRef,
		ProducerAccessMode: pb.ProducerAccessMode_Shared,
		DispatchStrategy:   wanted.DispatchStrategy,
	}
	at := address{brokerURL: c.serviceURL, connectURL: c.serviceURL}
	return &topicProducer{client: c, request: request, retries: limit(retries), at: at}
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
		at, lookupErr := p.partitions[0].client.lookup(ctx, part.at.connectURL, part.request.TopicName)
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
		if at, err := t.client.lookup(ctx, t.at.connectURL, t.request.TopicName); err == nil {
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
	t.request.RequestId = t.requestID
	answer, err := t.stub.CreateProducer(t.at.outgoing(ctx), t.request)
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
	if t.request.SchemaRef != nil {
		t.schema, err = t.client.schemas().resolve(ctx, t.request.SchemaRef)
	}
	return err
}

func (t *topicProducer) send(ctx context.Context, payload []byte, attributes map[string]string, key *string) error {
	t.requestID++
	_, err := t.stub.SendMessage(t.at.outgoing(ctx), &pb.StreamMessage{
		RequestId:     t.requestID,
		MsgId:         &pb.MsgID{ProducerId: t.id, TopicName: t.request.TopicName, BrokerAddr: t.at.brokerURL},
		Payload:       payload,
		PublishTime:   uint64(time.Now().UnixMilli()),
		ProducerName:  t.request.ProducerName,
		Attributes:    attributes,
		SchemaId:      t.schema.id,
		SchemaVersion: t.schema.version,
		RoutingKey:    key,
	})
	return err
}

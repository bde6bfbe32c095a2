package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	pb "conformance/danubepb"
)

// consumer reads all partitions of a topic, one stream each, into one bounded queue.
type consumer struct {
	topics       map[string]*topicConsumer
	subscription string
	shutdown     atomic.Bool
	cancel       context.CancelFunc
}

type topicConsumer struct {
	client    *client
	request   *pb.ConsumerRequest
	retries   int
	at        address
	stub      pb.ConsumerServiceClient
	id        uint64
	requestID atomic.Uint64
	closed    atomic.Bool
	stop      context.CancelFunc
}

func newConsumer(ctx context.Context, c *client, request *pb.ConsumerRequest, retries int) (*consumer, error) {
	names, err := c.partitions(ctx, request.TopicName)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("no partitions found")
	}
	made := &consumer{topics: map[string]*topicConsumer{}, subscription: request.Subscription}
	failures := make(chan error, len(names))
	for _, name := range names {
		part := &topicConsumer{client: c, retries: limit(retries), at: address{brokerURL: c.serviceURL, connectURL: c.serviceURL}}
		part.request = &pb.ConsumerRequest{
			TopicName:        name,
			ConsumerName:     request.ConsumerName,
			Subscription:     request.Subscription,
			SubscriptionType: request.SubscriptionType,
			KeyFilters:       request.KeyFilters,
		}
		made.topics[name] = part
		go func() { failures <- part.subscribe(ctx) }()
	}
	var first error
	for range names {
		if err := <-failures; err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	return made, nil
}

func (c *consumer) receive() <-chan *pb.StreamMessage {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	queue := make(chan *pb.StreamMessage, receiveBuffer)
	var loops sync.WaitGroup
	for _, part := range c.topics {
		loops.Add(1)
		go func() {
			defer loops.Done()
			part.receiveLoop(ctx, &c.shutdown, queue)
		}()
	}
	go func() {
		loops.Wait()
		close(queue)
	}()
	return queue
}

// ack routes by the topic named in the message: a broker that names another one crashes this client,
// as it does the one it stands for.
func (c *consumer) ack(ctx context.Context, message *pb.StreamMessage) error {
	part := c.topics[message.GetMsgId().GetTopicName()]
	request := &pb.AckRequest{RequestId: message.RequestId, MsgId: message.MsgId, SubscriptionName: c.subscription}
	_, err := part.stub.Ack(part.at.outgoing(ctx), request)
	return err
}

func (c *consumer) nack(ctx context.Context, message *pb.StreamMessage, delayMs *uint64, reason *string) error {
	part := c.topics[message.GetMsgId().GetTopicName()]
	_, err := part.stub.Nack(part.at.outgoing(ctx), &pb.NackRequest{
		RequestId:        message.RequestId,
		MsgId:            message.MsgId,
		SubscriptionName: c.subscription,
		DelayMs:          delayMs,
		Reason:           reason,
	})
	return err
}

func (c *consumer) close() {
	c.shutdown.Store(true)
	if c.cancel != nil {
		c.cancel()
	}
	for _, part := range c.topics {
		part.stop()
	}
	time.Sleep(closePause)
}

func (t *topicConsumer) subscribe(ctx context.Context) error {
	retries := 0
	for {
		if at, err := t.client.lookup(ctx, t.at.connectURL, t.request.TopicName); err == nil {
			t.at = at
		}
		if retries > 0 {
			time.Sleep(backoff(retries))
		}
		err := t.trySubscribe(ctx)
		if err == nil || !retryable(err) || retries == t.retries {
			return err
		}
		retries++
	}
}

func (t *topicConsumer) trySubscribe(ctx context.Context) error {
	connection, err := t.client.connection(t.at)
	if err != nil {
		return err
	}
	t.stub = pb.NewConsumerServiceClient(connection)
	t.request.RequestId = t.requestID.Add(1)
	answer, err := t.stub.Subscribe(t.at.outgoing(ctx), t.request)
	if err != nil {
		return err
	}
	t.id = answer.ConsumerId
	pinging, stop := context.WithCancel(context.Background())
	t.stop = stop
	go t.client.ping(pinging, t.at, pb.HealthCheckRequest_Consumer, t.id, &t.closed)
	return nil
}

// receiveLoop keeps one stream open. A clean end and a status that is not retryable stop it for good;
// a retryable one reopens. Opening does not wait for the broker, so a refused open looks like a broken stream
// and the retries only add up while the broker cannot be reached at all.
func (t *topicConsumer) receiveLoop(ctx context.Context, shutdown *atomic.Bool, queue chan<- *pb.StreamMessage) {
	retries := 0
	for !shutdown.Load() {
		request := &pb.ReceiveRequest{RequestId: t.requestID.Add(1), ConsumerId: t.id}
		stream, err := t.stub.ReceiveMessages(t.at.outgoing(ctx), request)
		if err == nil {
			retries = 0
			err = t.forward(ctx, shutdown, stream, queue)
		}
		switch {
		case shutdown.Load():
			return
		case t.closed.Swap(false):
			if err := t.subscribe(ctx); err != nil {
				t.report(err)
				return
			}
		case !retryable(err):
			t.report(err)
			return
		default:
			if retries++; retries <= t.retries {
				time.Sleep(backoff(retries))
				continue
			}
			if err := t.subscribe(ctx); err != nil {
				t.report(err)
				return
			}
			retries = 0
		}
	}
}

func (t *topicConsumer) report(err error) {
	fmt.Fprintf(os.Stderr, "receive loop of %s ended: %v\n", t.request.TopicName, err)
}

func (t *topicConsumer) forward(ctx context.Context, shutdown *atomic.Bool, stream pb.ConsumerService_ReceiveMessagesClient, queue chan<- *pb.StreamMessage) error {
	for !shutdown.Load() && !t.closed.Load() {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case queue <- message:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Drives a NATS server with JetStream: asynchronous publishing, ordered consumers.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"danube.compare/load"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const stallLimit = 5 * time.Minute

func main() {
	load.Main(perform)
}

func perform(order load.Order) (load.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stallLimit)
	defer cancel()
	js, err := connect(order)
	if err != nil {
		return load.Result{}, err
	}
	subjects := []string{order.Topic + ".*"}
	config := jetstream.StreamConfig{Name: order.Topic, Subjects: subjects, Storage: jetstream.FileStorage}
	if _, err := js.CreateOrUpdateStream(ctx, config); err != nil {
		return load.Result{}, err
	}
	switch order.Work {
	case "publish":
		seconds, err := publish(order)
		return load.Result{Messages: order.Count, Seconds: seconds}, err
	case "consume":
		return consume(ctx, order)
	case "fanout":
		return fanOut(ctx, order)
	case "latency":
		return latency(ctx, order)
	}
	return load.Result{}, fmt.Errorf("unknown work %q", order.Work)
}

func connect(order load.Order, options ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
	connection, err := nats.Connect(order.Address)
	if err != nil {
		return nil, err
	}
	return jetstream.New(connection, options...)
}

// A producer per connection, its share of the messages each, until every one is acknowledged.
func publish(order load.Order) (float64, error) {
	producers := make([]*producer, order.Producers)
	for number := range producers {
		producer, err := newProducer(order)
		if err != nil {
			return 0, err
		}
		producers[number] = producer
	}
	errs := make([]error, order.Producers)
	var running sync.WaitGroup
	start := time.Now()
	for number, producer := range producers {
		running.Go(func() {
			share := order.Count / order.Producers
			if number < order.Count%order.Producers {
				share++
			}
			payload := make([]byte, order.Size)
			for range share {
				if errs[number] = producer.send(payload); errs[number] != nil {
					return
				}
			}
			errs[number] = producer.finish()
		})
	}
	running.Wait()
	return time.Since(start).Seconds(), errors.Join(errs...)
}

type producer struct {
	js       jetstream.JetStream
	subjects []string
	sent     int
	refused  atomic.Int64
}

func newProducer(order load.Order) (*producer, error) {
	it := &producer{subjects: make([]string, order.Topics)}
	for number := range it.subjects {
		it.subjects[number] = fmt.Sprintf("%s.%d", order.Topic, number)
	}
	js, err := connect(order,
		jetstream.WithPublishAsyncMaxPending(order.InFlight),
		jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { it.refused.Add(1) }),
	)
	it.js = js
	return it, err
}

func (it *producer) send(payload []byte) error {
	subject := it.subjects[it.sent%len(it.subjects)]
	it.sent++
	_, err := it.js.PublishAsync(subject, payload, jetstream.WithStallWait(stallLimit))
	return err
}

func (it *producer) finish() error {
	select {
	case <-it.js.PublishAsyncComplete():
	case <-time.After(stallLimit):
		return errors.New("acknowledgements are missing")
	}
	if refused := it.refused.Load(); refused > 0 {
		return fmt.Errorf("%d messages were refused", refused)
	}
	return nil
}

// Start one ordered consumer on a connection of its own; the channel closes when it has seen all it should.
func follow(
	ctx context.Context, order load.Order, policy jetstream.DeliverPolicy, seen func([]byte),
) (<-chan struct{}, error) {
	js, err := connect(order)
	if err != nil {
		return nil, err
	}
	consumer, err := js.OrderedConsumer(ctx, order.Topic, jetstream.OrderedConsumerConfig{DeliverPolicy: policy})
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	received := 0
	_, err = consumer.Consume(func(message jetstream.Msg) {
		seen(message.Data())
		received++
		if received == order.Count {
			close(done)
		}
	}, jetstream.PullMaxMessages(5000))
	return done, err
}

func consume(ctx context.Context, order load.Order) (load.Result, error) {
	start := time.Now()
	done, err := follow(ctx, order, jetstream.DeliverAllPolicy, func([]byte) {})
	if err == nil {
		err = await(done)
	}
	return load.Result{Messages: order.Count, Seconds: time.Since(start).Seconds()}, err
}

func fanOut(ctx context.Context, order load.Order) (load.Result, error) {
	ends := make([]<-chan struct{}, order.Consumers)
	for number := range ends {
		done, err := follow(ctx, order, jetstream.DeliverNewPolicy, func([]byte) {})
		if err != nil {
			return load.Result{}, err
		}
		ends[number] = done
	}
	start := time.Now()
	if _, err := publish(order); err != nil {
		return load.Result{}, err
	}
	for _, done := range ends {
		if err := await(done); err != nil {
			return load.Result{}, err
		}
	}
	return load.Result{Messages: order.Count * order.Consumers, Seconds: time.Since(start).Seconds()}, nil
}

func latency(ctx context.Context, order load.Order) (load.Result, error) {
	var watch load.Stopwatch
	done, err := follow(ctx, order, jetstream.DeliverNewPolicy, watch.Receive)
	if err != nil {
		return load.Result{}, err
	}
	producer, err := newProducer(order)
	if err != nil {
		return load.Result{}, err
	}
	start := time.Now()
	err = load.Pace(order.Count, order.Rate, func(due time.Time) error {
		payload := make([]byte, order.Size)
		load.Stamp(payload, due)
		return producer.send(payload)
	})
	if err == nil {
		err = errors.Join(producer.finish(), await(done))
	}
	if err != nil {
		return load.Result{}, err
	}
	return watch.Result(time.Since(start).Seconds()), nil
}

func await(done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-time.After(stallLimit):
		return errors.New("messages are missing")
	}
}

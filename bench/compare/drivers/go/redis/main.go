// Drives Redis Streams where redis-benchmark cannot: readers that follow, and the time until they see a message.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"danube.compare/load"
	"github.com/redis/go-redis/v9"
)

const (
	field       = "d"
	pipeline    = 256
	readCount   = 1000
	readTimeout = time.Minute
)

func main() {
	load.Main(perform)
}

func perform(order load.Order) (load.Result, error) {
	switch order.Work {
	case "fanout":
		return fanOut(order)
	case "latency":
		return latency(order)
	}
	return load.Result{}, fmt.Errorf("unknown work %q", order.Work)
}

func connect(order load.Order) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: order.Address, ReadTimeout: readTimeout, PoolSize: 4})
}

func key(order load.Order) string {
	return order.Topic + ":0"
}

// The end of the stream as an id to read after: with XREAD's "$" a message between two reads would be lost.
func lastID(ctx context.Context, client *redis.Client, stream string) (string, error) {
	last, err := client.XRevRangeN(ctx, stream, "+", "-", 1).Result()
	if err != nil || len(last) == 0 {
		return "0", err
	}
	return last[0].ID, nil
}

// Follow the stream until all messages were seen.
func follow(ctx context.Context, order load.Order, after string, seen func(string)) error {
	client := connect(order)
	stream := key(order)
	for received := 0; received < order.Count; {
		arguments := &redis.XReadArgs{Streams: []string{stream, after}, Count: readCount, Block: readTimeout}
		streams, err := client.XRead(ctx, arguments).Result()
		if err != nil {
			return err
		}
		for _, message := range streams[0].Messages {
			seen(message.Values[field].(string))
			after = message.ID
			received++
		}
	}
	return nil
}

func fanOut(order load.Order) (load.Result, error) {
	ctx := context.Background()
	publisher, stream := connect(order), key(order)
	after, err := lastID(ctx, publisher, stream)
	if err != nil {
		return load.Result{}, err
	}
	var readers sync.WaitGroup
	errs := make(chan error, order.Consumers)
	start := time.Now()
	for range order.Consumers {
		readers.Go(func() {
			errs <- follow(ctx, order, after, func(string) {})
		})
	}
	payload := string(make([]byte, order.Size))
	for sent := 0; sent < order.Count; {
		batch := publisher.Pipeline()
		for ; sent < order.Count && batch.Len() < pipeline; sent++ {
			batch.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{field, payload}})
		}
		if _, err := batch.Exec(ctx); err != nil {
			return load.Result{}, err
		}
	}
	readers.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return load.Result{}, err
		}
	}
	return load.Result{Messages: order.Count * order.Consumers, Seconds: time.Since(start).Seconds()}, nil
}

// Publishing must not wait for the answer before the next message is due, so a second goroutine drains answers:
// everything that is due goes out as one pipeline, and up to four pipelines are under way.
func latency(order load.Order) (load.Result, error) {
	ctx := context.Background()
	publisher, stream := connect(order), key(order)
	after, err := lastID(ctx, publisher, stream)
	if err != nil {
		return load.Result{}, err
	}
	var watch load.Stopwatch
	read := make(chan error, 1)
	go func() {
		read <- follow(ctx, order, after, func(payload string) { watch.Receive([]byte(payload)) })
	}()
	due := make(chan []byte, order.InFlight)
	written := make(chan error, 4)
	for range cap(written) {
		go func() { written <- write(ctx, publisher, stream, due) }()
	}
	start := time.Now()
	err = load.Pace(order.Count, order.Rate, func(moment time.Time) error {
		payload := make([]byte, order.Size)
		load.Stamp(payload, moment)
		due <- payload
		return nil
	})
	close(due)
	for range cap(written) {
		if failed := <-written; failed != nil {
			return load.Result{}, failed
		}
	}
	if err == nil {
		err = <-read
	}
	if err != nil {
		return load.Result{}, err
	}
	return watch.Result(time.Since(start).Seconds()), nil
}

// Send what is due until there is no more; what waits together travels together.
func write(ctx context.Context, client *redis.Client, stream string, due <-chan []byte) error {
	for payload := range due {
		batch := client.Pipeline()
		for more := true; more; {
			batch.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{field, payload}})
			more = false
			if batch.Len() < pipeline {
				select {
				case payload, more = <-due:
				default:
				}
			}
		}
		if _, err := batch.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

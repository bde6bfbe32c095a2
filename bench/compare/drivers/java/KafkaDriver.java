import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Drives Kafka where its own tools cannot: several producers, many topics, followers, latency at a rate. */
public final class KafkaDriver {
    private final Load load;

    private KafkaDriver(Load load) {
        this.load = load;
    }

    public static void main(String[] arguments) throws Exception {
        KafkaDriver driver = new KafkaDriver(new Load(arguments));
        driver.createTopics();
        switch (driver.load.work) {
            case "publish" -> Load.print(driver.load.number("count"), driver.publish());
            case "fanout" -> driver.fanOut();
            case "latency" -> driver.latency();
            default -> throw new IllegalArgumentException("unknown work " + driver.load.work);
        }
        System.exit(0);
    }

    private Map<String, Object> server() {
        return Map.of("bootstrap.servers", load.text("address"));
    }

    private void createTopics() throws Exception {
        try (Admin admin = Admin.create(server())) {
            List<NewTopic> topics =
                    Arrays.stream(load.topics()).map(name -> new NewTopic(name, 1, (short) 1)).toList();
            for (var creation : admin.createTopics(topics).values().values()) {
                try {
                    creation.get();
                } catch (ExecutionException failure) {
                    if (!(failure.getCause() instanceof TopicExistsException)) throw failure;
                }
            }
        }
    }

    private KafkaProducer<byte[], byte[]> producer(int lingerMillis) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", load.text("address"),
                "acks", "all",
                "batch.size", 65536,
                "linger.ms", lingerMillis);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private double publish() throws Exception {
        String[] topics = load.topics();
        Load.Publisher[] publishers = new Load.Publisher[load.number("producers")];
        for (int i = 0; i < publishers.length; i++) {
            KafkaProducer<byte[], byte[]> producer = producer(5);
            AtomicReference<Exception> refusal = new AtomicReference<>();
            byte[] payload = new byte[load.number("size")];
            publishers[i] = messages -> {
                for (int sent = 0; sent < messages; sent++) {
                    producer.send(new ProducerRecord<>(topics[sent % topics.length], payload), (at, failure) -> {
                        if (failure != null) refusal.set(failure);
                    });
                }
                producer.flush();
                if (refusal.get() != null) throw refusal.get();
            };
        }
        return load.secondsOf(publishers);
    }

    /** Follow the first topic from its end in a thread; returns once the position is known. */
    private CountDownLatch follow(Consumer<byte[]> seen) throws Exception {
        CountDownLatch ready = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(1);
        Thread thread = new Thread(() -> {
            try (KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(server(), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                TopicPartition partition = new TopicPartition(load.topics()[0], 0);
                consumer.assign(List.of(partition));
                consumer.seekToEnd(List.of(partition));
                consumer.position(partition);
                ready.countDown();
                int missing = load.number("count");
                while (missing > 0) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                        seen.accept(record.value());
                        missing--;
                    }
                }
                done.countDown();
            }
        });
        thread.setDaemon(true);
        thread.start();
        Load.await(ready);
        return done;
    }

    private void fanOut() throws Exception {
        CountDownLatch[] ends = new CountDownLatch[load.number("consumers")];
        for (int i = 0; i < ends.length; i++) ends[i] = follow(payload -> {});
        long start = System.nanoTime();
        publish();
        for (CountDownLatch done : ends) Load.await(done);
        Load.print((long) load.number("count") * ends.length, (System.nanoTime() - start) / 1e9);
    }

    private void latency() throws Exception {
        Load.Stopwatch watch = new Load.Stopwatch(load.number("count"));
        CountDownLatch done = follow(watch::receive);
        String topic = load.topics()[0];
        long start = System.nanoTime();
        try (KafkaProducer<byte[], byte[]> producer = producer(0)) {
            load.pace(payload -> producer.send(new ProducerRecord<>(topic, payload)));
            producer.flush();
            Load.await(done);
        }
        watch.print((System.nanoTime() - start) / 1e9);
    }
}

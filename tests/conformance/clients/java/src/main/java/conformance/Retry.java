package conformance;

import io.grpc.Status;
import java.util.EnumSet;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/** Which failures are tried again, how often, and after which pause. */
final class Retry {
    private static final int USUAL = 5;
    private static final long BASE_MS = 200;
    private static final long CAP_MS = 5_000;

    private static final Set<Status.Code> RETRYABLE = EnumSet.of(
            Status.Code.UNAVAILABLE, Status.Code.DEADLINE_EXCEEDED, Status.Code.RESOURCE_EXHAUSTED);
    private static final Set<Status.Code> RECREATE = EnumSet.of(
            Status.Code.NOT_FOUND, Status.Code.FAILED_PRECONDITION, Status.Code.PERMISSION_DENIED,
            Status.Code.UNAUTHENTICATED, Status.Code.ABORTED);

    private Retry() {}

    /** How often to retry: as often as asked for, or as usual. */
    static int limit(int retries) {
        return retries == 0 ? USUAL : retries;
    }

    static boolean retryable(Throwable error) {
        return RETRYABLE.contains(Status.fromThrowable(error).getCode());
    }

    /** Failures after which a send, ack or receive loop looks up and registers anew, for ever. */
    static boolean recreates(Throwable error) {
        return RECREATE.contains(Status.fromThrowable(error).getCode());
    }

    static void pause(int retry) {
        long full = Math.min(BASE_MS * retry, CAP_MS);
        sleep(ThreadLocalRandom.current().nextLong(full / 2, full + 1));
    }

    static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted", interrupted);
        }
    }
}

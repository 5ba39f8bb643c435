package fencelock;

/** A lock of some client, as one contender has it. */
interface Recipe {
    /** Something that was acquired. These locks belong to the thread that acquired them. */
    interface Held {
        void release() throws Exception;

        /** Goes on as a reader, without letting go. */
        default Held downgrade() throws Exception {
            throw new UnsupportedOperationException("only a writer can become a reader");
        }
    }

    /** The locks of a client by name. */
    interface Locks {
        Recipe of(String recipe, String parent, String name);
    }

    /** Null when time ran out; a negative time is without limit. */
    Held acquire(long waitMs) throws Exception;

    /** How many are known to contend for it; one more once somebody has come who waits. */
    int queued() throws Exception;
}

package com.acme;

/** None: it cannot be made. */
public class Fails extends Renamed {
    public Fails() {
        throw new IllegalStateException("no licence");
    }
}

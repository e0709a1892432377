package com.acme;

/** What a transformer has beside itself. */
final class Named {
    String name(String source) {
        return "Renamed from " + source;
    }
}

package stompgateway.jms;

/** Called once when a connection reports that it is lost; called on whatever thread the provider has for that. */
public interface Lost {
    void lost(String reason);
}

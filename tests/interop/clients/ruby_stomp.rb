# Drives the stomp gem, through Stomp::Connection.

require "json"
require "stomp"
require "timeout"

SECONDS = 60

class RubyStomp
  def initialize
    @connections = {}
    @waiting = Hash.new { |all, name| all[name] = [] }
    @received = []
    @receipts = 0
  end

  def connect(request)
    headers = { "accept-version" => request["version"], "host" => request["host"] }
    headers = {} if request["version"] == "1.0"
    headers["client-id"] = request["client_id"] if request["client_id"]
    host = { login: request["login"], passcode: request["passcode"], host: request["host"], port: request["port"] }
    if request["tls"]
      tls = request["tls"]
      host[:ssl] = Stomp::SSLParams.new(ts_files: tls["ca"], cert_file: tls["certificate"], key_file: tls["key"])
    end
    connection = Stomp::Connection.new(
      hosts: [host], reliable: false, connect_headers: headers, logger: Stomp::NullLogger.new, connect_timeout: SECONDS
    )
    frame = connection.connection_frame
    raise "#{frame.command}: #{frame.headers["message"]}" unless frame.command == "CONNECTED"

    @waiting.delete(request["connection"])
    @connections[request["connection"]] = connection
    { "version" => connection.protocol }
  end

  def subscribe(request)
    with_receipt(request) do |connection, receipt|
      headers = request["headers"].merge(receipt, ack: request["ack"], id: request["id"])
      connection.subscribe(request["destination"], headers, request["id"])
    end
  end

  def unsubscribe(request)
    with_receipt(request) do |connection, receipt|
      connection.unsubscribe(request["destination"], request["headers"].merge(receipt, id: request["id"]), request["id"])
    end
  end

  def send(request)
    with_receipt(request) do |connection, receipt|
      headers = request["headers"].merge(receipt)
      headers[:transaction] = request["transaction"] if request["transaction"]
      connection.publish(request["destination"], [request["body"]].pack("H*"), headers)
    end
  end

  def receive(request)
    name = request["connection"]
    message = @waiting[name].shift || frame(name, request["seconds"])
    return nil if message.nil?
    raise "#{message.command}: #{message.headers["message"]}" unless message.command == "MESSAGE"

    @received << message
    { "number" => @received.size - 1, "headers" => message.headers, "body" => message.body.b.unpack1("H*") }
  end

  def ack(request)
    message = @received[request["number"]]
    with_receipt(request) do |connection, receipt|
      headers = receipt
      headers[:transaction] = request["transaction"] if request["transaction"]
      headers[:subscription] = message.headers["subscription"] if message.headers["subscription"]
      id = connection.protocol == "1.2" ? message.headers["ack"] : message.headers["message-id"]
      connection.ack(id, headers)
    end
  end

  def begin(request)
    with_receipt(request) { |connection, receipt| connection.begin(request["transaction"], receipt) }
  end

  def commit(request)
    with_receipt(request) { |connection, receipt| connection.commit(request["transaction"], receipt) }
  end

  def abort(request)
    with_receipt(request) { |connection, receipt| connection.abort(request["transaction"], receipt) }
  end

  def disconnect(request)
    @receipts += 1
    # The gem itself waits for this receipt, and then closes.
    @connections.delete(request["connection"]).disconnect(receipt: "r#{@receipts}")
    nil
  end

  private

  def with_receipt(request)
    @receipts += 1
    name = request["connection"]
    yield @connections.fetch(name), { receipt: "r#{@receipts}" }
    loop do
      answer = frame(name, SECONDS)
      raise "no receipt within #{SECONDS} s" if answer.nil?
      return nil if answer.command == "RECEIPT"
      raise "expected a receipt, got #{answer.command}: #{answer.headers["message"]}" unless answer.command == "MESSAGE"

      @waiting[name] << answer
    end
  end

  def frame(name, seconds)
    Timeout.timeout(seconds) { @connections.fetch(name).receive }
  rescue Timeout::Error
    nil
  end
end

$stdout.sync = true
driver = RubyStomp.new
$stdin.each_line do |line|
  request = JSON.parse(line)
  begin
    answer = { "ok" => driver.public_send(request["verb"], request) }
  rescue StandardError => e
    answer = { "error" => "#{e.class}: #{e.message}" }
  end
  puts JSON.generate(answer)
end

<?php
// Drives PHP's stomp extension, which speaks STOMP 1.0.

const SECONDS = 60;

$connections = [];
$received = [];
$receipts = 0;

function receipt(): array
{
    global $receipts;
    $receipts++;
    // The extension waits for the receipt itself, and keeps messages that come before it.
    return ['receipt' => "r$receipts"];
}

function check(Stomp $client, bool $done): void
{
    if (!$done) {
        throw new RuntimeException($client->error() ?: 'no receipt');
    }
}

function transaction(array $request): array
{
    return isset($request['transaction']) ? ['transaction' => $request['transaction']] : [];
}

$verbs = [
    'connect' => function (array $request) use (&$connections) {
        $headers = isset($request['client_id']) ? ['client-id' => $request['client_id']] : [];
        // It ends a connection without a receipt, so the server may still hold the client-id for a moment.
        $until = microtime(true) + SECONDS;
        while (true) {
            try {
                $client = new Stomp("tcp://{$request['host']}:{$request['port']}", $request['login'], $request['passcode'], $headers);
                break;
            } catch (StompException $error) {
                if (!isset($request['client_id']) || microtime(true) > $until) {
                    throw $error;
                }
                usleep(20000);
            }
        }
        $client->setReadTimeout(SECONDS);
        $connections[$request['connection']] = $client;
        return ['version' => '1.0'];
    },
    'subscribe' => function (array $request) use (&$connections) {
        $client = $connections[$request['connection']];
        $headers = ['id' => $request['id'], 'ack' => $request['ack']] + $request['headers'] + receipt();
        check($client, $client->subscribe($request['destination'], $headers));
    },
    'unsubscribe' => function (array $request) use (&$connections) {
        $client = $connections[$request['connection']];
        check($client, $client->unsubscribe($request['destination'], ['id' => $request['id']] + $request['headers'] + receipt()));
    },
    'send' => function (array $request) use (&$connections) {
        $client = $connections[$request['connection']];
        $headers = $request['headers'] + transaction($request) + receipt();
        check($client, $client->send($request['destination'], hex2bin($request['body']), $headers));
    },
    'receive' => function (array $request) use (&$connections, &$received) {
        $client = $connections[$request['connection']];
        $client->setReadTimeout((int) $request['seconds'], (int) (fmod($request['seconds'], 1) * 1e6));
        $frame = $client->readFrame();
        $client->setReadTimeout(SECONDS);
        if ($frame === false) {
            return null;
        }
        if ($frame->command !== 'MESSAGE') {
            throw new RuntimeException("$frame->command: " . ($frame->headers['message'] ?? ''));
        }
        $received[] = $frame;
        return ['number' => count($received) - 1, 'headers' => $frame->headers, 'body' => bin2hex($frame->body ?? '')];
    },
    'ack' => function (array $request) use (&$connections, &$received) {
        $client = $connections[$request['connection']];
        $frame = $received[$request['number']];
        $headers = ['subscription' => $frame->headers['subscription']] + transaction($request) + receipt();
        check($client, $client->ack($frame->headers['message-id'], $headers));
    },
    'disconnect' => function (array $request) use (&$connections) {
        unset($connections[$request['connection']]);
    },
];
foreach (['begin', 'commit', 'abort'] as $command) {
    $verbs[$command] = function (array $request) use (&$connections, $command) {
        $client = $connections[$request['connection']];
        check($client, $client->$command($request['transaction'], receipt()));
    };
}

while (($line = fgets(STDIN)) !== false) {
    $request = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
    try {
        $answer = ['ok' => $verbs[$request['verb']]($request)];
    } catch (Throwable $error) {
        $details = $error instanceof StompException ? ' ' . $error->getDetails() : '';
        $answer = ['error' => get_class($error) . ': ' . $error->getMessage() . $details];
    }
    echo json_encode($answer, JSON_THROW_ON_ERROR), "\n";
}

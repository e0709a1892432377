# Drives Net::Stomp.

use strict;
use warnings;
use JSON::PP;
use Net::Stomp;
use Net::Stomp::Frame;

use constant SECONDS => 60;

my (%connections, %waiting, @received);
my $receipts = 0;
my $json = JSON::PP->new->utf8;

sub receipt { return 'r' . ++$receipts }

# The frame with its receipt; messages that come before it are kept for receive.
sub wait_for {
    my ($name, $receipt) = @_;
    while (my $frame = $connections{$name}->receive_frame({ timeout => SECONDS })) {
        return undef if $frame->command eq 'RECEIPT' && $frame->headers->{'receipt-id'} eq $receipt;
        die 'expected a receipt, got ' . $frame->command . ': ' . ($frame->headers->{message} // '') . "\n"
            if $frame->command ne 'MESSAGE';
        push @{ $waiting{$name} }, $frame;
    }
    die "no receipt $receipt within " . SECONDS . " s\n";
}

my %verbs = (
    connect => sub {
        my $request = shift;
        my %how = (hostname => $request->{host}, port => $request->{port}, timeout => SECONDS);
        if (my $tls = $request->{tls}) {
            $how{ssl} = 1;
            $how{ssl_options} = {
                SSL_ca_file => $tls->{ca}, SSL_cert_file => $tls->{certificate}, SSL_key_file => $tls->{key}, SSL_verify_mode => 1
            };
        }
        my $client = Net::Stomp->new(\%how);
        my %headers = (login => $request->{login}, passcode => $request->{passcode});
        if ($request->{version} ne '1.0') {
            $headers{'accept-version'} = $request->{version};
            $headers{host} = $request->{host};
        }
        $headers{'client-id'} = $request->{client_id} if defined $request->{client_id};
        my $frame = $client->connect(\%headers);
        die 'refused: ' . ($frame ? $frame->headers->{message} : 'no answer') . "\n" unless $frame && $frame->command eq 'CONNECTED';
        $connections{ $request->{connection} } = $client;
        $waiting{ $request->{connection} } = [];
        return { version => $frame->headers->{version} // '1.0' };
    },
    subscribe => sub {
        my $request = shift;
        my $receipt = receipt();
        $connections{ $request->{connection} }->subscribe({
            %{ $request->{headers} }, destination => $request->{destination}, id => $request->{id}, ack => $request->{ack},
            receipt => $receipt
        });
        return wait_for($request->{connection}, $receipt);
    },
    unsubscribe => sub {
        my $request = shift;
        my $receipt = receipt();
        $connections{ $request->{connection} }->unsubscribe({
            %{ $request->{headers} }, destination => $request->{destination}, id => $request->{id}, receipt => $receipt
        });
        return wait_for($request->{connection}, $receipt);
    },
    send => sub {
        my $request = shift;
        my $receipt = receipt();
        my $body = pack 'H*', $request->{body};
        my %headers = (
            %{ $request->{headers} }, destination => $request->{destination}, receipt => $receipt, 'content-length' => length $body
        );
        $headers{transaction} = $request->{transaction} if defined $request->{transaction};
        $connections{ $request->{connection} }->send({ %headers, body => $body });
        return wait_for($request->{connection}, $receipt);
    },
    receive => sub {
        my $request = shift;
        my $frame = shift @{ $waiting{ $request->{connection} } };
        $frame //= $connections{ $request->{connection} }->receive_frame({ timeout => $request->{seconds} });
        return undef unless $frame;
        die $frame->command . ': ' . ($frame->headers->{message} // '') . "\n" if $frame->command ne 'MESSAGE';
        push @received, $frame;
        return { number => $#received, headers => $frame->headers, body => unpack 'H*', $frame->body // '' };
    },
    ack => sub {
        my $request = shift;
        my $receipt = receipt();
        my $frame = $received[ $request->{number} ];
        my %headers = (frame => $frame, receipt => $receipt);
        # 1.2 names the acknowledged message by the header id, 1.1 wants the subscription with it; Net::Stomp leaves both to its user.
        $headers{id} = $frame->headers->{ack} if defined $frame->headers->{ack};
        $headers{subscription} = $frame->headers->{subscription} if defined $frame->headers->{subscription};
        $headers{transaction} = $request->{transaction} if defined $request->{transaction};
        $connections{ $request->{connection} }->ack(\%headers);
        return wait_for($request->{connection}, $receipt);
    },
    disconnect => sub {
        my $request = shift;
        my $receipt = receipt();
        # Its own disconnect asks for no receipt, so what comes next on another connection could overtake it.
        my $client = $connections{ $request->{connection} };
        $client->send_frame(Net::Stomp::Frame->new({ command => 'DISCONNECT', headers => { receipt => $receipt } }));
        wait_for($request->{connection}, $receipt);
        $client->socket->close;
        delete $connections{ $request->{connection} };
        return undef;
    },
);

for my $command (qw(begin commit abort)) {
    $verbs{$command} = sub {
        my $request = shift;
        my $receipt = receipt();
        $connections{ $request->{connection} }->send_frame(Net::Stomp::Frame->new({
            command => uc $command, headers => { transaction => $request->{transaction}, receipt => $receipt }
        }));
        return wait_for($request->{connection}, $receipt);
    };
}

$| = 1;
while (my $line = <STDIN>) {
    my $request = $json->decode($line);
    my $answer = eval { +{ ok => $verbs{ $request->{verb} }->($request) } } // { error => "$@" };
    print $json->encode($answer), "\n";
}
